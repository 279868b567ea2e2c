"""Constraints on the weights of the layer before a spectral layer (ECCV 2022): spectral norm 1, or orthogonal."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from spectralgrad.nn import OrthogonalConv2d

from .errors import NetworkError
from .layer_search import layers_before_spectral


def constrained(layer: nn.Module, weights: str, where: str) -> nn.Module:
    """The layer with the constraint, or another layer in its place.

    Args:
        layer: a linear layer or a convolution.
        weights: ``"sn"`` for spectral norm 1, ``"ow"`` for orthogonal weights; anything else is no constraint.
        where: named by the error.

    Returns:
        for ``"sn"`` and for what is only a matrix the same layer, parametrized; for a convolution with ``"ow"`` a new
        :class:`~spectralgrad.nn.OrthogonalConv2d`. A layer that is constrained already is returned as it is.

    Raises:
        NetworkError: ``"ow"``, and the convolution has no orthogonal counterpart.

    Example:
        >>> type(constrained(nn.Conv2d(1, 4, 3, padding=1), "ow", "conv1")).__name__
        'OrthogonalConv2d'
    """
    if isinstance(layer, OrthogonalConv2d) or parametrize.is_parametrized(layer, "weight"):
        return layer
    if weights == "sn":
        return parametrizations.spectral_norm(layer)
    return _orthogonal(layer, where) if weights == "ow" else layer


def constrain_weights(net: nn.Module, weights: str, example: Tensor) -> None:
    """Constrain the layers that feed the spectral layers of a network, in place.

    Args:
        net: the network.
        weights: ``"sn"`` or ``"ow"``.
        example: a batch (B, C, H, W) to find the layers with.
    """
    for name, layer in layers_before_spectral(net, example).items():
        parent, _, attribute = name.rpartition(".")
        setattr(net.get_submodule(parent), attribute, constrained(layer, weights, name))


def _orthogonal(layer: nn.Module, where: str) -> nn.Module:
    if isinstance(layer, nn.Conv2d) and _preserves_size(layer):
        kernel, bias = layer.kernel_size[0], layer.bias is not None
        return OrthogonalConv2d(layer.in_channels, layer.out_channels, kernel, bias=bias).to(layer.weight)
    if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d) and layer.weight[0, 0].numel() == 1:
        return parametrizations.orthogonal(layer)
    raise NetworkError(
        f"weights='ow': expected a convolution of stride 1 that preserves the size before the spectral layer, "
        f"got {layer} in {where}; choose weights='sn' or another network"
    )


def _preserves_size(layer: nn.Conv2d) -> bool:
    """True if OrthogonalConv2d can replace it: square odd kernel, stride 1, output of the same size, no groups."""
    height, width = layer.kernel_size
    same = layer.padding in ("same", (height // 2, width // 2))
    return height == width and height % 2 == 1 and same and layer.stride == (1, 1) and layer.groups == 1
