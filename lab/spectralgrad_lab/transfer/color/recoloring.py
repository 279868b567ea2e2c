"""Colour transfer between images as files store them, tile by tile.

Mean and covariance are accumulated over tiles in float64, then the map is applied to tiles. Floats exist for one tile
at a time; besides, there are the samples of image and result, one byte each for 8-bit images.
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

from ..moments import Moments, color_moments, merged
from ..pictures.picture import quantized
from ..pictures.samples import Samples
from .affine_map import ColorMap, coloring_map
from .layer import SPACES, SpaceName

TILE = 2**16  # pixels; 1.5 MB for each float64 copy of a tile
Progress = Callable[[int], object]  # called with the number of pixels done since the last call


class StyleColors(NamedTuple):
    """What is transferred of a style image: the moments of its colours in a space, and whether it is a grey image."""

    moments: Moments
    space: SpaceName
    is_grey: bool


class Recolored(NamedTuple):
    """The result of :func:`recolor`: the samples, and the share of the visible ones that had to be clipped."""

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
    noise = 0.5 / content.top * SPACES[style.space].stretch
    mapping = coloring_map(_moments(content, style.space, progress), style.moments, rule, noise)
    colors = 1 if content.colors == 1 and style.is_grey else 3
    values = np.empty((*content.values.shape[:2], colors + content.has_alpha), content.values.dtype)
    clipped, visible = 0, 0
    tiles = _tiles(content, style.space)
    for out, (tile, alpha), before in zip(_flat_tiles(values), tiles, _flat_tiles(content.values), strict=True):
        mapped = _mapped(tile, mapping, style.space, strength)[:colors]
        seen = torch.ones_like(mapped, dtype=torch.bool) if alpha is None else (alpha > 0).expand_as(mapped)
        visible += int(seen.sum())
        clipped += int((seen & ((mapped < 0) | (mapped > 1))).sum())
        out[:, :colors] = quantized(mapped.T, content.bits)
        out[:, colors:] = before[:, content.colors :]
        progress(len(out))
    return Recolored(Samples(values, content.profile, content.exif), clipped / visible)


def _mapped(tile: Tensor, mapping: ColorMap, space: SpaceName, strength: float) -> Tensor:
    """The result for colours (3, n) of the space, in sRGB."""
    return SPACES[space].leave(torch.lerp(tile, mapping(tile), strength).unsqueeze(-1)).squeeze(-1)


def _moments(samples: Samples, space: SpaceName, progress: Progress) -> Moments:
    def parts() -> Iterator[Moments]:
        for colors, alpha in _tiles(samples, space):
            yield color_moments(colors, alpha)
            progress(colors.shape[1])

    moments = reduce(merged, parts())
    if not bool(moments.total > 0):
        raise ArgumentError("the image is transparent everywhere, so it has no colours")
    return moments


def _tiles(samples: Samples, space: SpaceName) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Colours (3, n) in the space, float64, and opacities (1, n) from 0 to 1, of one tile after the other."""
    levels = torch.arange(samples.top + 1, dtype=torch.float64) / samples.top
    curve = SPACES[space].curve(levels)  # computed once for each level, because powers are slow
    for tile in _flat_tiles(samples.values):
        values = torch.from_numpy(tile.T.astype(np.int64))  # (C, n)
        colors = curve[values[: samples.colors]].expand(3, -1)
        alpha = levels[values[samples.colors :]] if samples.has_alpha else None
        yield SPACES[space].mix(colors.unsqueeze(-1)).squeeze(-1), alpha


def _flat_tiles(values: np.ndarray) -> Iterator[np.ndarray]:
    """Views (n, C) of consecutive pixels; of pixels rather than rows, so that the shape of the image is irrelevant."""
    flat = values.reshape(-1, values.shape[2])
    for start in range(0, len(flat), TILE):
        yield flat[start : start + TILE]
