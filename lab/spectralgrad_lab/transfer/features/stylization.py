"""Style transfer by whitening and colouring of features at several levels, from the deepest to the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from spectralgrad.errors import ArgumentError, ShapeError
from spectralgrad.nn import functional
from spectralgrad.rules import Method

from .feature_statistics import FeatureStatistics, whitening_coloring
from .mirror_decoder import Decoder
from .tiles import padded, tiles
from .vgg_encoder import Encoder, check_level

SIDE = 512  # of a tile, without its margin

Change = Callable[[Tensor], Tensor]
Progress = Callable[[int], object]


@torch.inference_mode()
def stylize(
    content: Tensor,
    style: Tensor,
    encoder: Encoder,
    decoders: Mapping[int, Decoder],
    levels: Sequence[int] = (3, 2, 1),
    *,
    strength: float | Sequence[float] = 0.6,
    method: str | Method = "exact",
    side: int = SIDE,
    progress: Progress | None = None,
) -> Tensor:
    """Give an image the style of another one.

    At each level, from the deepest to the first, the image is encoded, its features are whitened and coloured with mean
    and covariance of the style's, and decoded to the image for the next level. A level of strength 0 is left out, so
    with strength 0 the content is returned as it is. Images are processed in overlapping tiles: memory grows with the
    image itself, not with its features, and there are no seams.

    Args:
        content: RGB from 0 to 1, (3, H, W), of any size.
        style: RGB from 0 to 1, (3, H', W').
        encoder: of the features.
        decoders: one for each of the levels.
        levels: from 1 (colours and finest texture) to 5 (largest texture), any subset, in any order.
        strength: from 0 to 1, one for all levels or one for each, in the order of ``levels``.
        method: method of the matrix roots, one of ``methods("sqrt")``. All but iterations give the same image.
        side: of a tile in pixels.
        progress: called with numbers of pixels done: the style's once, the content's twice per level.

    Returns:
        (3, H, W), from 0 to 1.

    Raises:
        ShapeError: an image has the wrong shape.
        ArgumentError: a level is unknown, repeated or has no decoder, a strength is not in 0 to 1, or a decoder does
            not fit the encoder.

    Example:
        >>> encoder, decoders = Encoder((4, 4, 8, 8, 8)), {1: Decoder(1, 4), 2: Decoder(2, 4)}
        >>> content, style = torch.rand(3, 30, 45), torch.rand(3, 20, 20)
        >>> stylize(content, style, encoder, decoders, levels=(2, 1)).shape
        torch.Size([3, 30, 45])
        >>> torch.equal(stylize(content, style, encoder, decoders, (2, 1), strength=0), content)
        True

    Reference: Li et al., Universal Style Transfer via Feature Transforms, NeurIPS 2017; Wang et al., TPAMI 2021,
    section 5.3.1 and Figure 2(e).
    """
    for name, image in (("content", content), ("style", style)):
        _check_image(name, image)
    plan = {level: share for level, share in _plan(levels, strength).items() if share > 0}
    _check_decoders(plan, encoder, decoders)
    done = progress or (lambda _: None)
    wanted = image_statistics(style, encoder, plan, side, done) if plan else {}
    for level, share in plan.items():
        content = _restyled(content, wanted[level], encoder, decoders[level], share, method, side, done)
    return content


def image_statistics(
    image: Tensor, encoder: Encoder, levels: Iterable[int], side: int = SIDE, progress: Progress | None = None
) -> dict[int, FeatureStatistics]:
    """Mean and covariance of an image's features at several levels, from one pass over its tiles.

    Args:
        image: (3, H, W); the last row and column are repeated to a multiple of the deepest level's stride.
        encoder, levels, side, progress: as in :func:`stylize`.

    Example:
        >>> found = image_statistics(torch.rand(3, 20, 40), Encoder((4, 4, 8, 8, 8)), (1, 2))
        >>> found[1].count, found[2].count
        (800, 200)
    """
    levels = tuple(levels)
    deepest = max(levels)
    image = padded(image, 2 ** (deepest - 1))
    found = {level: FeatureStatistics(encoder.widths[level - 1]) for level in levels}
    for row, column in tiles(image, 2 ** (deepest - 1), encoder.margin(deepest), side):
        features = encoder.features(image[None, :, row.outer, column.outer], levels)
        for level, values in features.items():
            stride = 2 ** (level - 1)
            found[level].add(values[0, :, row.inner(stride), column.inner(stride)])
        if progress is not None:
            progress(row.length * column.length)
    return found


def _restyled(
    image: Tensor,
    style: FeatureStatistics,
    encoder: Encoder,
    decoder: Decoder,
    strength: float,
    method: str | Method,
    side: int,
    progress: Progress,
) -> Tensor:
    """Encode an image at the decoder's level, transform its features, and decode it."""
    level, stride, size = decoder.level, 2 ** (decoder.level - 1), image.shape[-2:]
    image = padded(image, stride)
    found = image_statistics(image, encoder, (level,), side, progress)[level]
    few = found.features is not None  # fewer positions than channels: a small image, which is one tile
    change = _few(style, strength, method) if few else whitening_coloring(found, style, strength, method)
    result = torch.empty_like(image)
    margin = encoder.margin(level) + decoder.margin
    for row, column in tiles(image, stride, margin, max(image.shape[-2:]) if few else side):
        features = encoder(image[None, :, row.outer, column.outer], level)[0]
        decoded = decoder(change(features)[None])[0]
        result[:, row.place, column.place] = decoded[:, row.inner(), column.inner()]
        progress(row.length * column.length)
    return result[:, : size[0], : size[1]].clamp(0, 1)


def _few(style: FeatureStatistics, strength: float, method: str | Method) -> Change:
    """The transform of a map with fewer positions than channels, which is whitened by its positions."""
    matrix, mean = style.root(method)[None], style.mean

    def change(features: Tensor) -> Tensor:
        X = features[None].to("cpu", torch.float64)
        Y = functional.wct(X, matrix=matrix, mean=mean, strength=strength, eps=0.0, method=method)
        return Y[0].to(features)

    return change


def _plan(levels: Sequence[int], strength: float | Sequence[float]) -> dict[int, float]:
    """The strength of each level, from the deepest to the first."""
    for level in levels:
        check_level(level)
    if not levels or len(set(levels)) != len(levels):
        raise ArgumentError(f"stylize: expected different levels, got {list(levels)}")
    shares = [float(strength)] * len(levels) if isinstance(strength, (int, float)) else [float(s) for s in strength]
    if len(shares) != len(levels):
        raise ArgumentError(f"stylize: expected one strength or {len(levels)}, one for each level, got {len(shares)}")
    wrong = [share for share in shares if not 0 <= share <= 1]
    if wrong:
        raise ArgumentError(f"stylize: expected a strength from 0 to 1, got {wrong[0]:g}")
    return dict(sorted(zip(levels, shares, strict=True), reverse=True))


def _check_image(name: str, image: Tensor) -> None:
    if image.dim() != 3 or image.shape[0] != 3 or 0 in image.shape or image.dtype != torch.float32:
        raise ShapeError(f"stylize: expected {name} as float32 RGB (3, H, W), got {image.dtype} {tuple(image.shape)}")
    if not image.isfinite().all():
        raise ArgumentError(f"stylize: expected finite pixels, got NaN or infinity in {name}")


def _check_decoders(levels: Iterable[int], encoder: Encoder, decoders: Mapping[int, Decoder]) -> None:
    for level in levels:
        if level not in decoders:
            raise ArgumentError(f"stylize: there is no decoder of level {level}; there are {sorted(decoders)}")
        decoder = decoders[level]
        if decoder.level != level or decoder.inputs != encoder.widths[level - 1]:
            raise ArgumentError(
                f"stylize: expected a decoder of level {level} for {encoder.widths[level - 1]} channels, "
                f"got one of level {decoder.level} for {decoder.inputs}"
            )
