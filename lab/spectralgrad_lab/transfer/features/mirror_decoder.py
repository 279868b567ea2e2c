"""Decoders: small networks that turn features of one level back into an image."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from spectralgrad.errors import ArgumentError, ShapeError

from .vgg_encoder import WIDTHS, check_level, convolutions, reflected

# Channels of the decoder at full, half, quarter and eighth resolution. VGG-16 has 64, 128, 256 and 512. Half the width
# at a resolution is a quarter of its multiplications, and most of them are at full resolution. What a decoder has to
# know is less than what the encoder computes: colours and edges of a few pixels. At an eighth, 128 channels keep the
# decoders of levels 4 and 5 below 3 MB each; with VGG's widths, level 5 alone would take 26 MB in half precision.
NARROW = (32, 64, 128, 128)
_CONVOLUTIONS = (2, 2, 3, 3)  # at each of these resolutions, as in VGG-16


class Decoder(nn.Module):
    """Mirror image of the encoder: 3×3 convolutions with reflection padding, nearest-neighbour upsampling between them.

    The decoder of level L has as many convolutions at each resolution as the encoder before it, with fewer channels,
    and one more for L = 1, where the mirror image would be a single linear map. Features are first centred and scaled
    with constants, which training measures: without this, Adam takes several times as many steps.

    Args:
        level: 1 to 5.
        inputs: channels of the features (default: as in VGG-16).
        widths: channels at full, half, quarter and eighth resolution.

    Example:
        >>> decoder = Decoder(3)
        >>> decoder(torch.rand(1, 256, 8, 12)).shape
        torch.Size([1, 3, 32, 48])
        >>> [sum(p.numel() for p in Decoder(level).parameters()) for level in (1, 2, 3, 4, 5)]
        [19331, 47011, 213027, 1024419, 1467171]

    Reference: Li et al., Universal Style Transfer via Feature Transforms, NeurIPS 2017, section 3.1; with VGG's widths
    there.
    """

    center: Tensor
    scale: Tensor

    def __init__(self, level: int, inputs: int | None = None, widths: Sequence[int] = NARROW) -> None:
        super().__init__()
        check_level(level)
        if len(widths) != len(NARROW) or min(widths) < 1:
            raise ArgumentError(f"Decoder: expected four positive widths, got {tuple(widths)}")
        self.level, self.inputs, self.widths = level, inputs or WIDTHS[level - 1], tuple(widths)
        self.stages = nn.ModuleList()
        channels = self.inputs
        for outputs in _plan(level, self.widths):
            sizes = [channels, *outputs]
            self.stages.append(nn.ModuleList(nn.Conv2d(a, b, 3) for a, b in pairwise(sizes)))
            channels = outputs[-1]
        self.register_buffer("center", torch.zeros(self.inputs, 1, 1))
        self.register_buffer("scale", torch.ones(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise for ReLU (He et al.), and the last convolution so that images are about middle grey."""
        stages = convolutions(self.stages)
        for stage in stages:
            for convolution in stage:
                nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
                nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        with torch.no_grad():
            stages[-1][-1].weight.mul_(0.1)
            nn.init.constant_(stages[-1][-1].bias, 0.5)  # type: ignore[arg-type]

    def forward(self, features: Tensor) -> Tensor:
        """Return images (N, 3, H, W) for features (N, C, h, w); values are about 0 to 1, but not clipped."""
        if features.dim() != 4 or features.shape[1] != self.inputs or min(features.shape[2:]) < 2:
            raise ShapeError(
                f"Decoder: expected features (N, {self.inputs}, h, w) of level {self.level} with at least 2×2 "
                f"positions, got {tuple(features.shape)}"
            )
        x, stages = (features - self.center) / self.scale, convolutions(self.stages)
        for i, stage in enumerate(stages):
            x = functional.interpolate(x, scale_factor=2.0, mode="nearest") if i else x
            for convolution in stage:
                x = reflected(convolution, x)
                x = x if convolution is stages[-1][-1] else x.relu_()
        return x

    @property
    def margin(self) -> int:
        """How many pixels beyond itself a position of the features must be known around an output pixel.

        Example:
            >>> [Decoder(level).margin for level in (1, 2, 3, 4, 5)]
            [2, 4, 12, 32, 64]
        """
        reach = 0
        for stage in reversed(convolutions(self.stages)):  # from the image back to the features
            reach = -(-reach // 2) + len(stage)
        return reach * 2 ** (self.level - 1)


def _plan(level: int, widths: Sequence[int]) -> list[list[int]]:
    """The output channels of every convolution, from the resolution of the features to full resolution."""
    if level == 1:
        return [[widths[0], 3]]
    stages = [[widths[level - 2]]]  # the mirror image of the first convolution of a block
    for i in range(level - 2, -1, -1):
        stages.append([widths[i]] * (_CONVOLUTIONS[i] - 1) + [widths[i - 1] if i else 3])
    return stages
