"""Residual networks for small and for large images, with torchvision's names for their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from .blocks import BasicBlock, Bottleneck
from .config import NetworkConfig
from .layer_search import Network
from .shared_layers import Head, before_spectral, convolution, is_pooled, normalization, treated

FIRST = 64  # filters of the first convolution, in the papers and so also in the small networks


class ResNet(Network):
    """A residual network.

    Args:
        config: layer, pooling and weights.
        channels: of the images.
        classes: number of classes.
        block: type of the blocks.
        depths: blocks per stage.
        widths: channels per stage, before the expansion of the block.
        first_stride: stride of the first stage; the other stages have 2.
        large: for large images: a 7×7 first convolution of stride 2 and max-pooling. With second-order pooling the last
            stage has stride 1, as in the code of MPN-COV: 14×14 positions for a 224×224 image. Networks for small
            images have a 3×3 convolution of stride 1.
    """

    def __init__(
        self,
        config: NetworkConfig,
        channels: int,
        classes: int,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        widths: Sequence[int],
        *,
        large: bool,
        first_stride: int = 1,
    ) -> None:
        super().__init__()
        first = convolution(channels, FIRST, 7, 2) if large else convolution(channels, FIRST, 3)
        self.conv1 = treated(first, config, not is_pooled(config))
        self.bn1 = normalization(config, FIRST)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if large else nn.Identity()
        self.stages, inputs = len(depths), FIRST
        for number, (depth, width) in enumerate(zip(depths, widths, strict=True), 1):
            last = number == len(depths)
            stride = first_stride if number == 1 else 1 if large and last and config.pooling != "average" else 2
            blocks = [block(inputs, width, stride)]
            inputs = block.expansion * width
            blocks += [block(inputs, width) for _ in range(depth - 1)]
            self.add_module(f"layer{number}", nn.Sequential(*blocks))
        end = f"layer{self.stages}.{depths[-1] - 1}"
        self.before_spectral = before_spectral(config, inputs, f"{end}.{block.last}")
        if self.before_spectral.startswith(end):
            self._treat_sum(end, config)
        self.head = Head(config, inputs)
        self.fc = nn.Linear(self.head.out_features, classes)

    def _treat_sum(self, end: str, config: NetworkConfig) -> None:
        """The pooled features are the sum of a convolution and a shortcut, perhaps a convolution: treat both."""
        if not isinstance(self.get_submodule(f"{end}.downsample"), nn.Identity):
            self.added = (f"{end}.downsample.0",)
        for name in (self.before_spectral, *self.added):
            parent, _, attribute = name.rpartition(".")
            layer = cast(nn.Conv2d, self.get_submodule(name))
            setattr(self.get_submodule(parent), attribute, treated(layer, config, here=True))

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, channels, H, W)."""
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for number in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{number}")(x)
        return self.fc(self.head(x))
