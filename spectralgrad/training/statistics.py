"""Running statistics of the weights as they are, not as they were in the last steps of training."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import SpectralError
from ..nn.running import RunningNorm

Layer: TypeAlias = "RunningNorm | _BatchNorm"


@torch.no_grad()
def renew_statistics(model: nn.Module, batches: Iterable[Any], forward: Callable[[Any], object] | None = None) -> None:
    r"""Average the running statistics of all normalisation layers anew, with the weights as they are.

    Running statistics are an average over the last steps, while the weights move. For a mean and a variance that
    matters little. A covariance of low rank has directions in which it is zero; whitening magnifies those by
    :math:`\varepsilon^{-1/2}`. When the weights turn, today's features have variance where the average of the last
    steps has next to none, and evaluation magnifies it. The effect grows with the learning rate and the number of such
    directions, and vanishes with small rates.

    Here the statistics are forgotten and become the plain mean over the batches. Normalisation layers are in training
    mode meanwhile, everything else in evaluation mode, so that dropout and the like are as they will be. Nothing else
    of the model changes; spectral hooks are not called. torch's ``update_bn`` does the same for its own layers.

    Args:
        model: with :class:`DecorrelatedBatchNorm2d`, :class:`PCADenoising2d`, torch's BatchNorm, or any mixture.
        batches: of training inputs; of tuples and lists the first item is taken, as with ``update_bn``. Some twenty
            are enough.
        forward: called with each input, by default the model; say ``lambda x: net(x.to(device))``.

    Raises:
        SpectralError: there were no batches. After this or any other error the statistics are as before.

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
    """The layers forget, and take the mean of what comes; modes, momenta and hooks are put back afterwards."""
    modes = {module: module.training for module in model.modules()}
    settings = [(layer, layer.momentum, layer.__dict__.get("_watchers")) for layer in layers]
    before = [{name: value.clone() for name, value in layer.named_buffers(recurse=False)} for layer in layers]
    try:
        model.eval()
        for layer in layers:
            layer.train()
            layer.reset_running_stats()
            layer.momentum = None
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
