"""The encoder of style transfer: the convolutions of VGG-16 up to relu5_1, with features at five levels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from spectralgrad.errors import ArgumentError, ShapeError

from ...data.folders import MEAN, STD

LEVELS = (1, 2, 3, 4, 5)  # relu1_1, relu2_1, relu3_1, relu4_1, relu5_1
WIDTHS = (64, 128, 256, 512, 512)  # channels of each block
BLOCKS = (2, 2, 3, 3, 3)  # convolutions of each block
_USED = (2, 2, 3, 3, 1)  # of these, the convolutions up to relu5_1


class Encoder(nn.Module):
    """VGG-16 from the image to relu1_1, relu2_1, relu3_1, relu4_1 and relu5_1, which are levels 1 to 5.

    Level L has one position for 2^(L−1) × 2^(L−1) pixels. Borders are padded by reflection, as is usual in style
    transfer; VGG-16 was trained with zeros, which would show as a dark frame in decoded images.

    Args:
        widths: channels of the five blocks, by default as in VGG-16. Narrower ones are for tests.

    Attributes:
        digest: SHA-256 of the weights if they come from a file, otherwise empty.

    Example:
        >>> encoder = Encoder(widths=(4, 4, 8, 8, 8))
        >>> encoder(torch.rand(1, 3, 32, 48), level=3).shape
        torch.Size([1, 8, 8, 12])

    Reference: Simonyan and Zisserman, ICLR 2015; Li et al., Universal Style Transfer via Feature Transforms, NeurIPS
    2017, section 3.1.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__()
        if len(widths) != len(WIDTHS) or min(widths) < 1:
            raise ArgumentError(f"Encoder: expected five positive widths, got {tuple(widths)}")
        self.widths, self.digest = tuple(widths), ""
        channels, self.blocks = 3, nn.ModuleList()
        for width, count in zip(self.widths, _USED, strict=True):
            sizes = [channels, *[width] * count]
            self.blocks.append(nn.ModuleList(nn.Conv2d(a, b, 3) for a, b in pairwise(sizes)))
            channels = width
        for name, values in (("mean", MEAN), ("std", STD)):
            self.register_buffer(name, torch.tensor(values).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor, level: int) -> Tensor:
        """Return the features at one level.

        Args:
            images: RGB from 0 to 1, (N, 3, H, W); height and width at least 2^level and multiples of 2^(level−1).
            level: 1 to 5.

        Returns:
            (N, C, H/2^(level−1), W/2^(level−1)).
        """
        return self.features(images, (level,))[level]

    def features(self, images: Tensor, levels: Iterable[int]) -> dict[int, Tensor]:
        """Return the features at several levels, from one pass."""
        wanted = set(levels)
        check_images(images, max(wanted))
        found: dict[int, Tensor] = {}
        x = (images - self.mean) / self.std
        for level, block in enumerate(convolutions(self.blocks), 1):
            x = x if level == 1 else functional.max_pool2d(x, 2)
            x = reflected(block[0], x).relu_()
            if level in wanted:
                found[level] = x
            if level == max(wanted):
                return found
            for convolution in block[1:]:
                x = reflected(convolution, x).relu_()
        raise AssertionError("the last level returns")

    def margin(self, level: int) -> int:
        """How many pixels beyond its own 2^(level−1) × 2^(level−1) a feature depends on, on each side.

        Example:
            >>> [Encoder((1,) * 5).margin(level) for level in LEVELS]
            [1, 4, 10, 26, 58]
        """
        check_level(level)
        before = sum(2**i * _USED[i] for i in range(level - 1))  # a convolution adds one position of its resolution
        return before + 2 ** (level - 1)


def convolutions(stages: nn.ModuleList) -> list[list[nn.Conv2d]]:
    """The convolutions of each stage of an encoder or decoder."""
    return [[layer for layer in stage.children() if isinstance(layer, nn.Conv2d)] for stage in stages]


def reflected(convolution: nn.Conv2d, x: Tensor) -> Tensor:
    """A 3×3 convolution of the same size, with the border padded by reflection."""
    result: Tensor = convolution(functional.pad(x, (1, 1, 1, 1), mode="reflect"))
    return result


def check_level(level: int) -> None:
    """Raise :class:`ArgumentError` unless ``level`` is 1 to 5."""
    if level not in LEVELS:
        raise ArgumentError(f"expected a level from 1 to 5, got {level!r}")


def check_images(images: Tensor, level: int) -> None:
    """Raise an error unless the images have a shape from which features of this level can be computed."""
    check_level(level)
    stride = 2 ** (level - 1)
    size = tuple(images.shape[-2:])
    if images.dim() != 4 or images.shape[1] != 3 or any(side < 2 * stride or side % stride for side in size):
        raise ShapeError(
            f"Encoder: expected RGB images (N, 3, H, W) whose sides are at least {2 * stride} and multiples of "
            f"{stride} for level {level}, got {tuple(images.shape)}"
        )
