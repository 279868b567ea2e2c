"""Recomputes running statistics for the current weights."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..dispatch.arguments import checked
from ..errors import SpectralError
from ..nn.running_norm import RunningNorm

__all__ = ["renew_statistics"]

Layer: TypeAlias = "RunningNorm | _BatchNorm"


@checked
@torch.no_grad()
def renew_statistics(model: nn.Module, batches: Iterable[Any], forward: Callable[[Any], object] | None = None) -> None:
    r"""Recompute the running statistics of all normalisation layers with the current weights.

    Running statistics average over the last training steps, during which the weights change. For a mean and a variance
    this matters little. A covariance of low rank is zero in some directions, and whitening magnifies those by
    :math:`\varepsilon^{-1/2}`. After the weights have changed, the features can have variance in directions in which
    the average has almost none, and evaluation magnifies it. The effect grows with the learning rate and with the
    number of such directions, and vanishes for small rates.

    This function resets the statistics and replaces them by the plain mean over the given batches. Meanwhile
    normalisation layers are in training mode and all other layers, such as dropout, in evaluation mode. Nothing else in
    the model changes, and spectral hooks are not called. ``torch.optim.swa_utils.update_bn`` does the same for torch's
    own layers.

    Args:
        model: a model with :class:`DecorrelatedBatchNorm2d`, :class:`PCADenoising2d` or torch's BatchNorm layers, in
            any combination.
        batches: training inputs. If a batch is a tuple or list, its first item is used, as in ``update_bn``. About
            twenty batches are enough.
        forward: called with each input (default: ``model``), for example ``lambda x: net(x.to(device))``.

    Raises:
        SpectralError: ``batches`` is empty. After this or any other error, the previous statistics are restored.

    Example:
        >>> import spectralgrad as sg
        >>> layer = sg.nn.DecorrelatedBatchNorm2d(4)
        >>> batches = [torch.randn(8, 4, 5, 5) for _ in range(3)]
        >>> renew_statistics(layer, batches)
        >>> torch.allclose(layer.running_mean, torch.cat(batches).mean((0, 2, 3)), atol=1e-6)
        True

    Reference: Y. Wu and J. Johnson, Rethinking "Batch" in BatchNorm, 2021 (precise batch statistics).
    """
    layers = [m for m in model.modules() if isinstance(m, RunningNorm | _BatchNorm) and m.running_mean is not None]
    with _averaging(model, layers):
        count = 0
        for count, batch in enumerate(batches, 1):  # noqa: B007
            (forward or model)(batch[0] if isinstance(batch, list | tuple) else batch)
        if not count:
            raise SpectralError("renew_statistics: expected at least one batch, got none")


@contextmanager
def _averaging(model: nn.Module, layers: list[Layer]) -> Iterator[None]:
    """Reset the statistics and average without momentum.

    Modes, momenta and hooks are restored afterwards, after an error also the statistics.
    """
    modes = {module: module.training for module in model.modules()}
    settings = [(layer, layer.momentum, layer.__dict__.get("_watchers")) for layer in layers]
    before = [{name: value.clone() for name, value in layer.named_buffers(recurse=False)} for layer in layers]
    try:
        model.eval()
        for layer in layers:
            layer.train()
            layer.reset_running_stats()
            layer.momentum = None  # cumulative average over all batches
            if isinstance(layer, RunningNorm):
                layer._watchers = OrderedDict()
        yield
    except BaseException:
        for layer, values in zip(layers, before, strict=True):
            _put_back(layer, values)
        raise
    finally:
        for layer, momentum, watchers in settings:
            layer.momentum = momentum
            if isinstance(layer, RunningNorm) and watchers is not None:
                layer._watchers = watchers
        for module, mode in modes.items():
            module.training = mode
        for layer in layers:
            layer.train(modes[layer])


def _put_back(layer: Layer, values: dict[str, Tensor]) -> None:
    for name, value in layer.named_buffers(recurse=False):
        value.copy_(values[name])
