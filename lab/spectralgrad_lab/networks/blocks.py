"""The blocks of residual networks, with torchvision's names for their parts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .shared_layers import convolution


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut.

    Example:
        >>> BasicBlock(8, 16, stride=2)(torch.randn(2, 8, 6, 6)).shape
        torch.Size([2, 16, 3, 3])

    Reference: He et al., Deep Residual Learning, CVPR 2016.
    """

    expansion, last = 1, "conv2"

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(inputs, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3), nn.BatchNorm2d(width)
        self.downsample = shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(nn.Module):
    """A 1×1, a 3×3 (with the stride) and a 1×1 convolution to four times the width beside a shortcut.

    Example:
        >>> Bottleneck(8, 4, stride=2)(torch.randn(2, 8, 6, 6)).shape
        torch.Size([2, 16, 3, 3])

    Reference: as in :class:`BasicBlock`.
    """

    expansion, last = 4, "conv3"

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        outputs = self.expansion * width
        self.conv1, self.bn1 = convolution(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = convolution(width, outputs, 1), nn.BatchNorm2d(outputs)
        self.downsample = shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + self.downsample(x))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The identity, or a 1×1 convolution where sizes differ."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
