"""Colour transfer between images as files store them, tile by tile.

Mean and covariance are accumulated over tiles in float64, then the map is applied to tiles. Floats exist for one tile
at a time; besides, there are the samples of the image and those of the result, one byte each for 8-bit images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from spectralgrad.errors import ArgumentError
from spectralgrad.rules import Method, resolve

from .color import SPACES, SpaceName
from .color_map import ColorMap, coloring_map
from .color_moments import Moments, color_moments, merged
from .pictures import quantized
from .samples import Samples

TILE = 2**18  # pixels; 6 MB for each float64 copy of a tile
Progress = Callable[[int], object]  # called with the number of pixels done since the last call


class StyleColors(NamedTuple):
    """What is transferred of a style image: the moments of its colours in a space, and whether it is a grey image."""

    moments: Moments
    space: SpaceName
    is_grey: bool


class Recolored(NamedTuple):
    """The result of :func:`recolor`: the samples, and the share of them that had to be clipped to their range."""

    samples: Samples
    clipped: float


def style_colors(style: Samples, space: SpaceName = "rgb", progress: Progress = lambda done: None) -> StyleColors:
    """Compute what is transferred of a style image. Pixels are weighted by their opacity.

    Args:
        style: the image.
        space: ``"rgb"`` or ``"lab"``.
        progress: called with the number of pixels done since the last call.

    Raises:
        ArgumentError: the image is transparent everywhere.

    Example:
        >>> grey = Samples(np.full((4, 4, 1), 51, np.uint8))
        >>> style_colors(grey).moments.mean
        tensor([0.2000, 0.2000, 0.2000], dtype=torch.float64)
    """
    return StyleColors(_moments(style, space, progress), space, style.colors == 1)


def recolor(
    content: Samples,
    style: StyleColors,
    *,
    strength: float = 1.0,
    method: str | Method = "exact",
    progress: Progress = lambda done: None,
) -> Recolored:
    """Give an image the mean and covariance of the colours of a style, as :class:`ColorTransfer` does.

    Opacity, profile and EXIF data stay. Grey content becomes a colour image unless the style is a grey image too.
    Directions of colour space along which the content varies by less than half a level count as constant.

    Args:
        content: the image.
        style: from :func:`style_colors`.
        strength: from 0 (the same samples) to 1.
        method: method for the square roots, one of ``methods("sqrt")``.
        progress: called with the number of pixels done since the last call; each pixel is done twice.

    Raises:
        ArgumentError: ``strength`` is not between 0 and 1, or the image is transparent everywhere.
        MethodError: the method is unknown.

    Example:
        >>> ramp = Samples(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
        >>> result = recolor(ramp, style_colors(Samples(np.full((2, 2, 3), [255, 0, 51], np.uint8))))
        >>> result.samples.values[0, 0]
        array([255,   0,  51], dtype=uint8)
    """
    if not 0 <= strength <= 1:
        raise ArgumentError(f"recolor: expected strength from 0 to 1, got {strength!r}")
    rule = resolve(method, "sqrt")
    if strength == 0:
        return Recolored(content, 0.0)
    noise = 0.5 / content.top * SPACES[style.space].extent
    mapping = coloring_map(_moments(content, style.space, progress), style.moments, rule, noise)
    colors = 1 if content.colors == 1 and style.is_grey else 3
    values = np.empty((*content.values.shape[:2], colors + content.has_alpha), content.values.dtype)
    clipped = 0
    for out, (tile, _), before in zip(_flat_tiles(values), _tiles(content), _flat_tiles(content.values), strict=True):
        mapped = _mapped(tile, mapping, style.space, strength)[:colors]
        clipped += int(((mapped < 0) | (mapped > 1)).sum())
        out[:, :colors] = quantized(mapped.T, content.bits)
        out[:, colors:] = before[:, content.colors :]
        progress(len(out))
    count = values.shape[0] * values.shape[1] * colors
    return Recolored(Samples(values, content.profile, content.exif), clipped / count)


def _mapped(tile: Tensor, mapping: ColorMap, space: SpaceName, strength: float) -> Tensor:
    enter, leave, _ = SPACES[space]
    x = enter(tile.unsqueeze(-1)).squeeze(-1)
    return leave(torch.lerp(x, mapping(x), strength).unsqueeze(-1)).squeeze(-1)


def _moments(samples: Samples, space: SpaceName, progress: Progress) -> Moments:
    def parts() -> Iterator[Moments]:
        for colors, alpha in _tiles(samples):
            yield color_moments(SPACES[space].enter(colors.unsqueeze(-1)).squeeze(-1), alpha)
            progress(colors.shape[1])

    moments = reduce(merged, parts())
    if not bool(moments.total > 0):
        raise ArgumentError("the image is transparent everywhere, so it has no colours")
    return moments


def _tiles(samples: Samples) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Colours (3, n) and opacities (1, n) of one tile after the other, float64 from 0 to 1."""
    for tile in _flat_tiles(samples.values):
        values = torch.from_numpy(tile.astype(np.float64)).div_(samples.top).T
        colors = values[: samples.colors].expand(3, -1)
        yield colors, values[samples.colors :] if samples.has_alpha else None


def _flat_tiles(values: np.ndarray) -> Iterator[np.ndarray]:
    """Views (n, C) of consecutive pixels; of pixels rather than rows, so that the shape of the image is irrelevant."""
    flat = values.reshape(-1, values.shape[2])
    for start in range(0, len(flat), TILE):
        yield flat[start : start + TILE]
