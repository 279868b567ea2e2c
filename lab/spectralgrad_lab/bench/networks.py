"""The network of the conditioning benchmarks: the CIFAR ResNet-18 of the papers."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from spectralgrad.nn import DecorrelatedBatchNorm2d


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut (He et al., 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Add the block's function to its input."""
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.shortcut(x))


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
