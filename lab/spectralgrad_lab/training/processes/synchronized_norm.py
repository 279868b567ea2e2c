"""Batch statistics over all processes, so that several processes train as one would."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from spectralgrad.nn.distributed import Reduce, reducer
from spectralgrad.nn.running_norm import RunningNorm
from spectralgrad.precision import full_precision, widen

from ..config.run_config import ConfigError

_KNOWN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def synchronize(net: nn.Module, processes: Any = None) -> nn.Module:
    """Make every batch normalization and spectral layer of a network compute its statistics over all processes.

    torch's SyncBatchNorm works only on accelerators and is used there. Names of parameters and buffers do not change.

    Args:
        net: its layers are replaced in place.
        processes: a process group (default: all processes).

    Raises:
        ConfigError: a batch normalization is not torch's own, so that it cannot be replaced.

    Example:
        >>> net = synchronize(torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)))
        >>> type(net[1]).__name__, list(net.state_dict())[2:4]
        ('SyncedBatchNorm', ['1.weight', '1.bias'])
    """
    for name, module in net.named_modules():
        if isinstance(module, RunningNorm):
            module.sync, module.process_group = True, module.process_group or processes
        elif isinstance(module, _BatchNorm):
            _check_known(name, module)
    first = next(net.parameters(), None)
    if first is not None and first.device.type != "cpu":
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(net, processes)
        return converted
    return _replaced(net, processes)


def release(net: nn.Module, processes: Any) -> None:
    """Remove all references to a process group from the layers of a network."""
    for module in net.modules():
        if getattr(module, "process_group", None) is processes:
            module.process_group = None  # type: ignore[assignment]


def _check_known(name: str, module: _BatchNorm) -> None:
    hooked = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
    if isinstance(module, nn.SyncBatchNorm) or (type(module) in _KNOWN and not hooked):
        return
    what = "one with hooks" if hooked else type(module).__name__
    raise ConfigError(
        f"network: the batch normalization {name!r} is {what}, whose statistics cannot be computed over all processes; "
        "expected torch's own, or train in one process"
    )


class SyncedBatchNorm(_BatchNorm):
    """Batch normalization over all processes on a CPU; with one process it is torch's own.

    Example:
        >>> layer, x = SyncedBatchNorm(3), torch.randn(4, 3, 5, 5)
        >>> torch.equal(layer(x), torch.nn.BatchNorm2d(3)(x))
        True
    """

    process_group: Any = None

    def forward(self, x: Tensor) -> Tensor:
        reduce = reducer(self.training or self.running_mean is None, self.process_group)
        if reduce is None:
            return super().forward(x)
        with full_precision(x):
            y, mean, variance, count = _normalized(widen(x), self.eps, reduce)
            if self.training and self.running_mean is not None:
                self._update(mean, variance * (count / (count - 1).clamp_min(1)))
            shape = (1, -1, *(1,) * (x.dim() - 2))
            if self.weight is not None:
                y = y * self.weight.view(shape) + self.bias.view(shape)
            return y.to(x.dtype)

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002
        """Not needed: the layer that this one replaces has checked its input."""

    @torch.no_grad()
    def _update(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
        self.running_var.lerp_(variance.to(self.running_var.dtype), rate)


def _normalized(x: Tensor, eps: float, reduce: Reduce) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The normalized batch, its mean and biased variance, and the number of values per channel."""
    dims, shape = [0, *range(2, x.dim())], (1, -1, *(1,) * (x.dim() - 2))
    here = x.new_tensor([x.numel() / x.shape[1]])
    sums = reduce(torch.cat([x.sum(dims), here]))
    count = sums[-1].detach()
    mean = sums[:-1] / count
    centered = x - mean.view(shape)
    variance = reduce(centered.square().sum(dims)) / count
    return centered * (variance + eps).rsqrt().view(shape), mean.detach(), variance.detach(), count


def _replaced(module: nn.Module, processes: Any) -> nn.Module:
    for name, child in module.named_children():
        setattr(module, name, _replaced(child, processes))
    if not isinstance(module, _KNOWN):
        return module
    synced = SyncedBatchNorm(
        module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats
    )
    for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        setattr(synced, name, getattr(module, name))
    synced.process_group = processes
    return synced.train(module.training)
