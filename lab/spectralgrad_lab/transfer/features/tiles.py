"""Cut an image into overlapping tiles, so that what is computed tile by tile equals the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from spectralgrad.errors import ArgumentError


@dataclass(frozen=True)
class Span:
    """One side of a tile: the part ``start:stop`` that it is responsible for, within ``first:last`` that it reads.

    Example:
        >>> Span(16, 32, 8, 40).inner(stride=4)
        slice(2, 6, None)
    """

    start: int
    stop: int
    first: int
    last: int

    @property
    def outer(self) -> slice:
        """What the tile reads of the image."""
        return slice(self.first, self.last)

    @property
    def place(self) -> slice:
        """Where the tile's part is in the image."""
        return slice(self.start, self.stop)

    @property
    def length(self) -> int:
        """Of the tile's part."""
        return self.stop - self.start

    def inner(self, stride: int = 1) -> slice:
        """Where the tile's part is in what was computed from it, with one position for ``stride`` pixels."""
        return slice((self.start - self.first) // stride, (self.stop - self.first) // stride)


def spans(length: int, stride: int, margin: int, side: int) -> list[Span]:
    """Divide a length into equal parts of at most ``side``, each read with a margin.

    All boundaries are multiples of ``stride``, so that pooling windows are the same as in the whole image. All parts
    read the same number of pixels, those at the border more of the inside: convolutions of one size reuse the same
    memory, whereas a few hundred megabytes more were in use after tiles of various sizes.

    Args:
        length: a multiple of ``stride``.
        stride: pixels per position of the features.
        margin: pixels to read on both sides, fewer at the borders; rounded up to a multiple of ``stride``.
        side: largest length of a part.

    Example:
        >>> [(s.first, s.start, s.stop, s.last) for s in spans(24, stride=4, margin=3, side=10)]
        [(0, 0, 8, 16), (4, 8, 16, 20), (8, 16, 24, 24)]
    """
    if length % stride or side < stride:
        raise ArgumentError(f"tiles: expected a length that is a multiple of {stride}, and larger tiles, got {length}")
    count = -(-length // (side // stride * stride))
    step = -(-length // (count * stride)) * stride
    wide = -(-margin // stride) * stride
    window = min(length, step + 2 * wide)
    found = []
    for start in range(0, length, step):
        first = min(max(0, start - wide), length - window)
        found.append(Span(start, min(start + step, length), first, first + window))
    return found


def tiles(image: Tensor, stride: int, margin: int, side: int) -> Iterator[tuple[Span, Span]]:
    """The tiles of an image (*, H, W), row by row, as a vertical and a horizontal span."""
    columns = spans(image.shape[-1], stride, margin, side)
    for row in spans(image.shape[-2], stride, margin, side):
        for column in columns:
            yield row, column


def padded(image: Tensor, stride: int) -> Tensor:
    """Repeat the last row and column until both sides are multiples of ``stride`` and hold at least two positions.

    Example:
        >>> padded(torch.rand(3, 5, 8), stride=4).shape
        torch.Size([3, 8, 8])
    """
    height, width = (max(2 * stride, -(-length // stride) * stride) - length for length in image.shape[-2:])
    return functional.pad(image, (0, width, 0, height), mode="replicate") if height or width else image
