"""AlexNet as in the code of the ICCV paper."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .config import NetworkConfig
from .errors import NetworkError
from .layer_search import Network
from .shared_layers import Head, before_spectral, is_pooled, normalization, reduces, treated

SMALLEST = 63  # pixels; leaves one position after the last pooling


class AlexNet(Network):
    """AlexNet with normalization after each convolution and without dropout.

    This is torchvision's network with 61,100,840 parameters for 1000 classes plus 2,304 for normalization. Second-order
    pooling replaces the last max-pooling: 13×13 positions of 256 channels become 32,896 features
    (33,153 for G²DeNet). The 1×1 convolution
    from 256 to 256 channels in the released code is omitted, since the paper has none.

    Args:
        config: layer, pooling and weights. Channels are reduced only if ``reduce_to`` is below 256.
        channels: of the images.
        image_size: at least 63.
        classes: number of classes.
    """

    def __init__(self, config: NetworkConfig, channels: int, image_size: int, classes: int) -> None:
        super().__init__()
        if image_size < SMALLEST:
            raise NetworkError(f"alexnet: expected images of at least {SMALLEST} pixels, got {image_size}")
        pooled = is_pooled(config)
        self.conv1 = treated(nn.Conv2d(channels, 64, 11, stride=4, padding=2), config, not pooled)
        self.bn1 = normalization(config, 64)
        self.conv2, self.bn2 = nn.Conv2d(64, 192, 5, padding=2), nn.BatchNorm2d(192)
        self.conv3, self.bn3 = nn.Conv2d(192, 384, 3, padding=1), nn.BatchNorm2d(384)
        self.conv4, self.bn4 = nn.Conv2d(384, 256, 3, padding=1), nn.BatchNorm2d(256)
        last = nn.Conv2d(256, 256, 3, padding=1)
        self.conv5, self.bn5 = treated(last, config, pooled and not reduces(config, 256)), nn.BatchNorm2d(256)
        self.maxpool = nn.MaxPool2d(3, 2)
        self.head = _six_by_six() if config.pooling == "average" else Head(config, 256)
        features = self.head.out_features if isinstance(self.head, Head) else 256 * 6 * 6
        self.classifier = nn.Sequential(
            nn.Linear(features, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, classes)
        )
        self.before_spectral = before_spectral(config, 256, "conv5")

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, channels, H, W)."""
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.maxpool(torch.relu(self.bn2(self.conv2(x))))
        x = torch.relu(self.bn3(self.conv3(x)))
        x = torch.relu(self.bn4(self.conv4(x)))
        x = torch.relu(self.bn5(self.conv5(x)))
        return self.classifier(self.head(x))


def _six_by_six() -> nn.Sequential:
    """Max-pooling, then 6×6 positions for any size of the image."""
    return nn.Sequential(nn.MaxPool2d(3, 2), nn.AdaptiveAvgPool2d(6), nn.Flatten())
