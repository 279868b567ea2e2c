"""A network of three convolutions, which trains on a CPU in seconds per epoch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .config import NetworkConfig
from .layer_search import Network
from .resnet import FIRST
from .shared_layers import Head, before_spectral, convolution, is_pooled, normalization, reduces, treated


class SmallNet(Network):
    """A first convolution as in the networks of the papers, and two more with stride 2.

    Average pooling leaves 4 × 4 positions; with a single one, a network this small learns several times more slowly.

    Args:
        config: layer, pooling and weights.
        channels: of the images.
        classes: number of classes.
        width: channels of the second convolution; the third has twice as many.
    """

    def __init__(self, config: NetworkConfig, channels: int, classes: int, width: int) -> None:
        super().__init__()
        pooled, last = is_pooled(config), 2 * width
        self.conv1 = treated(convolution(channels, FIRST, 3), config, not pooled)
        self.bn1 = normalization(config, FIRST)
        self.conv2, self.bn2 = convolution(FIRST, width, 3, 2), nn.BatchNorm2d(width)
        self.conv3 = treated(convolution(width, last, 3, 2), config, pooled and not reduces(config, last))
        self.bn3 = nn.BatchNorm2d(last)
        self.head = Head(config, last, grid=4)
        self.fc = nn.Linear(self.head.out_features, classes)
        self.before_spectral = before_spectral(config, last, "conv3")

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, channels, H, W)."""
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        x = torch.relu(self.bn3(self.conv3(x)))
        return self.fc(self.head(x))
