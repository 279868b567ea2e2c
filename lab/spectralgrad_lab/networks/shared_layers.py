"""Layers that several networks share: convolutions, the layer after the first one, the pooling."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from spectralgrad.nn import DecorrelatedBatchNorm2d, PCADenoising2d

from .config import NetworkConfig
from .errors import NetworkError
from .second_order import pooling_operation, second_order_pooling
from .weight_constraints import constrained


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias that preserves the size at stride 1, with He initialization (fan out)."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def is_pooled(config: NetworkConfig) -> bool:
    """True if pooling is the only spectral layer: weight treatments then apply to the convolution before it."""
    return pooling_operation(config.pooling, config.power) is not None and config.layer == "batchnorm"


def treated(layer: nn.Conv2d, config: NetworkConfig, here: bool) -> nn.Module:
    """The convolution with constrained weights, if it is the one before the spectral layer.

    It is constrained while the network is being built, not afterwards: the initial weights of the layers after it come
    from the same random numbers.
    """
    return constrained(layer, config.weights, config.network) if here else layer


def normalization(config: NetworkConfig, channels: int) -> nn.Module:
    """The layer after the first convolution."""
    if config.layer == "batchnorm":
        return nn.BatchNorm2d(channels)
    size = config.group_size or channels
    if size < 1 or channels % size:
        raise NetworkError(
            f"expected a group_size that divides the {channels} channels of the first convolution, got {size}"
        )
    settings: dict[str, Any] = {"groups": channels // size, "init": config.scale_init, **_spectral(config)}
    if config.layer == "denoising":
        averaged: Literal["covariance", "projector"] = "projector" if config.statistics == "projector" else "covariance"
        return PCADenoising2d(channels, keep=config.keep, statistics=averaged, **settings)
    statistics = cast(Literal["covariance", "whitening"], config.statistics)
    whitening = cast(Literal["zca", "pca", "cholesky"], config.whitening)
    return DecorrelatedBatchNorm2d(channels, statistics=statistics, whitening=whitening, **settings)


def _spectral(config: NetworkConfig) -> dict[str, Any]:
    """Keyword arguments of a spectral layer: method and ε where given, and the dtype to compute in."""
    given = {name: value for name in ("method", "eps") if (value := getattr(config, name)) is not None}
    return given | {"compute_dtype": torch.float64 if config.spectral_precision == "float64" else None}


def reduces(config: NetworkConfig, channels: int) -> bool:
    """True if a 1×1 convolution reduces the channels before second-order pooling."""
    return config.pooling != "average" and config.reduce_to is not None and config.reduce_to < channels


class Head(nn.Module):
    """The pooling before the classifier: average pooling, or second-order pooling after a reduction if one is needed.

    The reduction is a 1×1 convolution with batch normalization and ReLU, as in the code of MPN-COV and of ICCV 2021.

    Args:
        config: pooling, its method and ``reduce_to``.
        channels: of the features.
        grid: average pooling leaves grid × grid positions.

    Attributes:
        out_features: number of features per image.
    """

    def __init__(self, config: NetworkConfig, channels: int, grid: int = 1) -> None:
        super().__init__()
        self.reduction: nn.Module = nn.Identity()
        if reduces(config, channels):
            size = cast(int, config.reduce_to)
            first = treated(convolution(channels, size, 1), config, is_pooled(config))
            self.reduction = nn.Sequential(first, nn.BatchNorm2d(size), nn.ReLU(inplace=True))
            channels = size
        self.pooling: nn.Module = nn.AdaptiveAvgPool2d(grid)
        self.out_features = channels * grid**2
        if config.pooling != "average":
            self.pooling, self.out_features = second_order_pooling(
                config.pooling, channels, config.power, config.normalize, _spectral(config)
            )

    def forward(self, x: Tensor) -> Tensor:
        return self.pooling(self.reduction(x)).flatten(1)


def before_spectral(config: NetworkConfig, channels: int, last: str) -> str:
    """The name of the convolution before the spectral layer; ``last`` is the last one, with ``channels`` outputs."""
    if not is_pooled(config):
        return "conv1"
    return "head.reduction.0" if reduces(config, channels) else last
