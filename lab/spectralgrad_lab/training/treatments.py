"""What is done to the layer before a spectral layer: its weight, its gradient, its rate (ECCV 2022)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.optim import Optimizer

from spectralgrad.nn import OrthogonalConv2d, orthogonality_loss
from spectralgrad.optim import NearestOrthogonalGradient, OptimalLearningRate, pre_spectral_layers

from .config import Config, ConfigError

Penalty = Callable[[], Tensor]


def treat_weights(net: nn.Module, config: Config, example: Tensor) -> Penalty | None:
    """Make the weights before the spectral layers what ``config.weights`` says.

    Args:
        net: the network; its layers may be replaced in place.
        config: says which treatment.
        example: a batch, to find the layers with; one picture is enough.

    Returns:
        what to add to the loss, for ``"ol"``.

    Raises:
        ConfigError: a convolution has no orthogonal counterpart.
    """
    if config.weights == "plain":
        return None
    layers = _before_spectral(net, example)
    if config.weights == "ol":
        return lambda: torch.stack([orthogonality_loss(layer.weight, side="rows") for layer in layers.values()]).sum()  # type: ignore[arg-type]
    for name, layer in layers.items():
        if isinstance(layer, OrthogonalConv2d) or parametrize.is_parametrized(layer, "weight"):
            continue  # a network may have brought its own
        if config.weights == "sn":
            parametrizations.spectral_norm(layer)
        else:
            _make_orthogonal(net, name, layer)
    return None


def treat_gradients(net: nn.Module, config: Config, example: Tensor, optimizer: Optimizer) -> None:
    """Hang NOG and OLR on the optimiser, if the configuration wants them."""
    if not config.nog and not config.olr:
        return
    layers = list(_before_spectral(net, example).values())
    if config.nog:
        NearestOrthogonalGradient(optimizer, layers)
    if config.olr:
        OptimalLearningRate(optimizer, layers)


def _before_spectral(net: nn.Module, example: Tensor) -> dict[str, nn.Module]:
    """The networks of this package say it themselves; in others it is traced."""
    known = getattr(net, "before_spectral", None)
    if isinstance(known, str):
        return {known: net.get_submodule(known)}
    return {found.name: found.module for found in pre_spectral_layers(net, example).values()}


def _make_orthogonal(net: nn.Module, name: str, layer: nn.Module) -> None:
    """A 1×1 convolution is orthogonal if its matrix is; a larger one is replaced by a skew orthogonal one."""
    if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d) and layer.weight[0, 0].numel() == 1:
        parametrizations.orthogonal(layer)
    elif isinstance(layer, nn.Conv2d) and _plain(layer):
        new = OrthogonalConv2d(layer.in_channels, layer.out_channels, layer.kernel_size[0], bias=layer.bias is not None)
        parent, _, last = name.rpartition(".")
        setattr(net.get_submodule(parent), last, new.to(layer.weight))
    else:
        raise ConfigError(
            f"weights: 'ow' needs a convolution of stride 1 that keeps the size before the spectral layer, "
            f"got {layer} at {name!r}"
        )


def _plain(layer: nn.Conv2d) -> bool:
    k = layer.kernel_size
    keeps = layer.padding in ("same", tuple(side // 2 for side in k))
    return k[0] == k[1] and k[0] % 2 == 1 and keeps and layer.stride == (1, 1) and layer.groups == 1
