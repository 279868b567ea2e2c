"""The network of the benchmarks: the CIFAR ResNet-18 of the papers."""

from __future__ import annotations

from torch import nn

from ...networks import build
from ...training.config.run_config import Config


def resnet18(layer: str) -> nn.Module:
    """The papers' ResNet-18 for 32×32 images and ten classes, with the given layer after the first convolution."""
    return build(Config(network="resnet18-cifar", layer=layer), channels=3, image_size=32, classes=10)
