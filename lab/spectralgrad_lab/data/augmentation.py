"""Augmentation of whole batches of uint8 images. Random numbers are passed in; nothing here draws any."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from .errors import DataError

DRAWS = 4  # random numbers per image: top, left, flip, angle


@dataclass(frozen=True)
class Augmentation:
    """Changes to an image, applied in this order.

    Args:
        resize: length of the shorter side after resizing; None keeps the size.
        degrees: largest angle of a random rotation (nearest neighbor, black outside).
        padding: black pixels on each side.
        crop: side of the square crop; None for the size before padding.
        centered: crop the center, not a random position.
        flip: mirror left and right with probability 1/2.

    Example:
        >>> Augmentation(padding=4, centered=False, flip=True).evaluation
        Augmentation(resize=None, degrees=0.0, padding=0, crop=None, centered=True, flip=False)
    """

    resize: int | None = None
    degrees: float = 0.0
    padding: int = 0
    crop: int | None = None
    centered: bool = True
    flip: bool = False

    @property
    def evaluation(self) -> Augmentation:
        """The deterministic counterpart with the same size, for test images."""
        return replace(self, degrees=0.0, padding=0, centered=True, flip=False)


AUGMENTATIONS = {
    "none": Augmentation(),
    "crop-flip": Augmentation(padding=4, centered=False, flip=True),
    "imagenet": Augmentation(resize=256, crop=224, centered=False, flip=True),
    "fine-grained": Augmentation(resize=448, crop=448, flip=True),
    "rotate-flip": Augmentation(degrees=20.0, flip=True),
}


def resolve(augmentation: str | Augmentation) -> Augmentation:
    """Look up an augmentation by its name in ``AUGMENTATIONS``; an object is returned unchanged.

    Example:
        >>> resolve("imagenet").crop
        224
    """
    if isinstance(augmentation, Augmentation):
        return augmentation
    if augmentation not in AUGMENTATIONS:
        raise DataError(f"expected an augmentation of {', '.join(AUGMENTATIONS)}, got {augmentation!r}")
    return AUGMENTATIONS[augmentation]


def augmented(images: Tensor, draws: Tensor, how: Augmentation) -> Tensor:
    """Apply an augmentation to a batch.

    Args:
        images: uint8 (B, C, H, W).
        draws: (B, 4) uniform in [0, 1): top, left, flip, angle.
        how: the augmentation.

    Returns:
        uint8 (B, C, crop, crop), or (B, C, H, W) without a crop.

    Example:
        >>> images = torch.arange(6, dtype=torch.uint8).view(1, 1, 2, 3)
        >>> augmented(images, torch.zeros(1, 4), Augmentation(flip=True)).tolist()
        [[[[2, 1, 0], [5, 4, 3]]]]
    """
    if how.resize is not None:
        images = _resized(images, how.resize)
    if how.degrees:
        images = _rotated(images, (2 * draws[:, 3] - 1) * math.radians(how.degrees))
    flips = draws[:, 2] < 0.5 if how.flip else None
    if how.centered:
        return _flipped(_from_the_middle(images, how), flips)
    return _from_anywhere(images, draws, flips, how)


def _resized(images: Tensor, shorter: int) -> Tensor:
    now = min(images.shape[2:])
    if now == shorter:
        return images
    height, width = (max(shorter, length * shorter // now) for length in images.shape[2:])
    return functional.interpolate(images, (height, width), mode="bilinear", antialias=True)


def _rotated(images: Tensor, angles: Tensor) -> Tensor:
    """Rotate each image about its center by an angle in radians; the ratios undo the scaling of affine_grid."""
    height, width = images.shape[2:]
    cos, sin, zero = angles.cos(), angles.sin(), torch.zeros_like(angles)
    rows = (torch.stack([cos, -sin * height / width, zero], 1), torch.stack([sin * width / height, cos, zero], 1))
    grid = functional.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return functional.grid_sample(images.float(), grid, mode="nearest", align_corners=False).to(images.dtype)


def _flipped(images: Tensor, flips: Tensor | None) -> Tensor:
    return images if flips is None else torch.where(flips.view(-1, 1, 1, 1), images.flip(3), images)


def _from_the_middle(images: Tensor, how: Augmentation) -> Tensor:
    if how.crop is None:
        return images  # padding would be cropped again
    top, left = (round(r / 2) for r in _room(images, how, how.crop, how.crop))
    images = functional.pad(images, (how.padding,) * 4)
    return images[:, :, top : top + how.crop, left : left + how.crop]


def _from_anywhere(images: Tensor, draws: Tensor, flips: Tensor | None, how: Augmentation) -> Tensor:
    """Crop and flip in one gather: the positions (B, height · width) are the same for every channel."""
    height, width = (how.crop or length for length in images.shape[2:])
    room = _room(images, how, height, width)
    images = functional.pad(images, (how.padding,) * 4)
    tops, lefts = ((draws[:, i : i + 1] * (room[i] + 1)).long().clamp_(max=room[i]) for i in (0, 1))
    columns = torch.arange(width).expand(len(images), -1)
    if flips is not None:
        columns = torch.where(flips.view(-1, 1), columns.flip(1), columns)
    rows = (tops + torch.arange(height)) * images.shape[3]
    positions = (rows.unsqueeze(2) + (lefts + columns).unsqueeze(1)).flatten(1)
    chosen = images.flatten(2).gather(2, positions.unsqueeze(1).expand(-1, images.shape[1], -1))
    return chosen.unflatten(2, (height, width))


def _room(images: Tensor, how: Augmentation, height: int, width: int) -> tuple[int, int]:
    """How many pixels the crop can move down and to the right."""
    padded = [length + 2 * how.padding for length in images.shape[2:]]
    if padded[0] < height or padded[1] < width:
        raise DataError(f"cannot crop {height} × {width} from images of {padded[0]} × {padded[1]}")
    return padded[0] - height, padded[1] - width
