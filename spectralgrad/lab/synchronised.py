"""Batch statistics over all processes, so that many of them train as one would."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..nn.distributed import Reduce, reducer
from ..nn.running import RunningNorm
from ..precision import full_precision, widen


def synchronise(net: nn.Module) -> nn.Module:
    """Have every batch and spectral normalisation of a network take its statistics over all processes.

    torch's SyncBatchNorm works on accelerators only and is used there. Names of parameters and buffers stay.

    Example:
        >>> net = synchronise(torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)))
        >>> type(net[1]).__name__, list(net.state_dict())[2:4]
        ('SyncedBatchNorm', ['1.weight', '1.bias'])
    """
    for module in net.modules():
        if isinstance(module, RunningNorm):
            module.sync = True
    first = next(net.parameters(), None)
    if first is not None and first.device.type != "cpu":
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(net)
        return converted
    return _replaced(net)


class SyncedBatchNorm(_BatchNorm):
    """Batch normalisation over all processes on a CPU; with one process it is torch's.

    Example:
        >>> layer, x = SyncedBatchNorm(3), torch.randn(4, 3, 5, 5)
        >>> torch.equal(layer(x), torch.nn.BatchNorm2d(3)(x))
        True
    """

    def forward(self, x: Tensor) -> Tensor:
        reduce = reducer(self.training or self.running_mean is None)
        if reduce is None:
            return super().forward(x)
        with full_precision(x):
            y, mean, variance, count = _normalised(widen(x), self.eps, reduce)
            if self.training and self.running_mean is not None:
                self._update(mean, variance * (count / (count - 1).clamp_min(1)))
            shape = (1, -1, *(1,) * (x.dim() - 2))
            if self.weight is not None:
                y = y * self.weight.view(shape) + self.bias.view(shape)
            return y.to(x.dtype)

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002
        """The layer it replaces has checked."""

    @torch.no_grad()
    def _update(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
        self.running_var.lerp_(variance.to(self.running_var.dtype), rate)


def _normalised(x: Tensor, eps: float, reduce: Reduce) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The batch less its mean over its deviation; mean and variance (biased) and how many values they are of."""
    dims, shape = [0, *range(2, x.dim())], (1, -1, *(1,) * (x.dim() - 2))
    here = x.new_tensor([x.numel() / x.shape[1]])
    sums = reduce(torch.cat([x.sum(dims), here]))
    count = sums[-1].detach()
    mean = sums[:-1] / count
    centred = x - mean.view(shape)
    variance = reduce(centred.square().sum(dims)) / count
    return centred * (variance + eps).rsqrt().view(shape), mean.detach(), variance.detach(), count


def _replaced(module: nn.Module) -> nn.Module:
    for name, child in module.named_children():
        setattr(module, name, _replaced(child))
    if not isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
        return module
    synced = SyncedBatchNorm(
        module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats
    )
    for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        setattr(synced, name, getattr(module, name))
    return synced.train(module.training)
