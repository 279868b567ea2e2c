<<<<<<< HEAD
"""The networks of the benchmarks: the CIFAR ResNet-18 of the papers, and a small one."""
=======
"""The network of the conditioning benchmarks: the CIFAR ResNet-18 of the papers."""
>>>>>>> p-eccv

from __future__ import annotations

import torch
from torch import nn

from spectralgrad.nn import DecorrelatedBatchNorm2d

from ..networks import build
from ..training.config import Config


<<<<<<< HEAD
def resnet18(layer: str) -> nn.Module:
    """The papers' ResNet-18 for 32×32 images and ten classes, with the given layer after the first convolution."""
    return build(Config(network="resnet18-cifar", layer=layer), channels=3, image_size=32, classes=10)


def small(first: nn.Module, channels: int, eps: float) -> nn.Sequential:
    """The given convolution, whitening, and two convolutions with batch normalization, for ten classes.

    Whitening computes in float64, so that an ε of 1e-6 has an effect, and always uses batch statistics.
    """
    whiten = DecorrelatedBatchNorm2d(
        channels, eps, affine=False, track_running_stats=False, compute_dtype=torch.float64
    )
    return nn.Sequential(
        first, whiten, nn.ReLU(),
        nn.Conv2d(channels, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def first_layer(channels: int, kernel: int, orthogonal: bool) -> nn.Module:
    """The layer before the spectral one, for gray images; the orthogonal one is as accurate as in the released code."""
    if orthogonal:
        return OrthogonalConv2d(1, channels, 3, bias=False, tolerance=5e-3)
    return nn.Conv2d(1, channels, kernel, padding=kernel // 2, bias=False)
=======
class ResNet18(nn.Module):
    """ResNet-18 for 32×32 images, with whitening instead of batch normalization after the first convolution."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.whiten = DecorrelatedBatchNorm2d(64)
        widths = [64, 64, 128, 256, 512]
        stages = [
            nn.Sequential(Block(a, b, 1 if i == 0 else 2), Block(b, b, 1)) for i, (a, b) in enumerate(pairwise(widths))
        ]
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.stages(torch.relu(self.whiten(self.conv1(x))))
        return self.head(x.mean((2, 3)))
>>>>>>> p-eccv
