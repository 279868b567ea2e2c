"""Image files as tensors: read with what has to be kept, written in the same form."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from spectralgrad.errors import ShapeError

from .decoding import MAX_PIXELS, read_samples
from .encoding import write_samples
from .errors import PictureError
from .samples import Samples


@dataclass(frozen=True, eq=False)
class Picture:
    """An image with what is kept when it is saved.

    Args:
        pixels: float32 (3, H, W), RGB, or (1, H, W), grey; values from 0 to 1, as in the file (sRGB in general).
        alpha: opacity (1, H, W) from 0 to 1, or None.
        bits: bits per sample in a file, 8 or 16.
        profile: ICC profile, or None.
        exif: EXIF data without orientation, thumbnail and sizes.

    Raises:
        ShapeError: the shape of ``pixels`` or ``alpha`` is wrong.

    Example:
        >>> picture = Picture(torch.rand(1, 4, 6))
        >>> picture.rgb.shape, picture.size
        (torch.Size([3, 4, 6]), (4, 6))
        >>> picture.with_pixels(picture.rgb / 2).pixels.shape
        torch.Size([3, 4, 6])
    """

    pixels: Tensor
    alpha: Tensor | None = None
    bits: int = 8
    profile: bytes | None = field(default=None, repr=False)
    exif: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if self.pixels.dim() != 3 or self.pixels.shape[0] not in (1, 3):
            raise ShapeError(f"Picture: expected pixels (3, H, W) or (1, H, W), got {tuple(self.pixels.shape)}")
        if self.alpha is not None and self.alpha.shape != (1, *self.size):
            raise ShapeError(f"Picture: expected alpha {(1, *self.size)}, got {tuple(self.alpha.shape)}")

    @property
    def rgb(self) -> Tensor:
        """The pixels as (3, H, W); grey is repeated."""
        return self.pixels.expand(3, -1, -1)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.pixels.shape[1], self.pixels.shape[2]

    def with_pixels(self, pixels: Tensor) -> Picture:
        """Return a picture with other pixels, (3, H, W) or (1, H, W), and everything else the same."""
        return replace(self, pixels=pixels)


def read_picture(path: Path | str, *, longest: int | None = None, max_pixels: int = MAX_PIXELS) -> Picture:
    """Read an image file: PNG, JPEG, WebP, TIFF, BMP, GIF (first frame), PPM and others.

    The image is turned upright. Palettes, CMYK and other colour models become RGB; grey images stay grey. 16-bit
    samples are read with all their bits from PNG, TIFF and PPM.

    Args:
        path: the file.
        longest: if given, an image whose longer side is longer is reduced to this length (antialiased).
        max_pixels: refuse images with more pixels (default: 2²⁷, about 134 million).

    Raises:
        PictureError: the file is missing, empty, not an image, damaged, truncated or too large.

    Example:
        >>> from spectralgrad_lab.transfer.pictures.shipped import art_path
        >>> read_picture(art_path("cat"), longest=64).pixels.shape
        torch.Size([3, 43, 64])
    """
    if longest is not None and longest < 1:
        raise PictureError(path, f"expected longest ≥ 1, got {longest}")
    samples = read_samples(path, max_pixels=max_pixels, about=longest)
    picture = as_picture(samples)
    return picture if longest is None else _reduced(picture, longest)


def write_picture(path: Path | str, picture: Picture) -> None:
    """Write an image file atomically: on failure there is no partial file, and an existing file is unchanged.

    Pixels are clipped to 0..1. The profile and EXIF data are kept where the format has them, and 16 bits by PNG, TIFF
    and PPM; other formats get 8 bits, with a :class:`PictureWarning`.

    Args:
        path: the file; its suffix chooses the format: .png, .jpg, .webp, .tiff, .bmp or .ppm.
        picture: the image. If it is not opaque, the format has to be PNG, WebP or TIFF; which colour
            should shine through elsewhere is not for this function to decide.

    Raises:
        PictureError: the suffix is unknown, the folder is missing or not writable, the format cannot hold the
            picture, or a pixel is NaN.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "grey.png"
        >>> write_picture(path, Picture(torch.full((1, 2, 2), 0.2)))
        >>> read_picture(path).pixels.unique()
        tensor([0.2000])
    """
    channels = [picture.pixels] if picture.alpha is None else [picture.pixels, picture.alpha]
    values = torch.cat([channel.detach().cpu().float() for channel in channels]).permute(1, 2, 0)
    if not values.isfinite().all():
        raise PictureError(path, "cannot be written: the pixels contain NaN or infinity")
    write_samples(path, Samples(quantized(values, picture.bits), picture.profile, picture.exif))


def as_picture(samples: Samples) -> Picture:
    """Samples as floats from 0 to 1."""
    values = torch.from_numpy(samples.values.astype(np.float32)).div_(samples.top).permute(2, 0, 1).contiguous()
    alpha = values[-1:] if samples.has_alpha else None
    return Picture(values[: samples.colors], alpha, samples.bits, samples.profile, samples.exif)


def quantized(values: Tensor, bits: int) -> np.ndarray:
    """The nearest of the 2^bits levels, as uint8 or uint16."""
    levels = values.clamp(0, 1).mul(2**bits - 1).round().numpy()
    return levels.astype(np.uint8 if bits == 8 else np.uint16)


def _reduced(picture: Picture, longest: int) -> Picture:
    """Reduce the longer side to ``longest``, with transparent pixels weighted by their opacity."""
    height, width = picture.size
    if max(height, width) <= longest:
        return picture
    share = longest / max(height, width)
    size = (max(1, round(height * share)), max(1, round(width * share)))
    if picture.alpha is None:
        return replace(picture, pixels=_resized(picture.pixels, size))
    alpha = _resized(picture.alpha, size)
    pixels = _resized(picture.pixels * picture.alpha, size) / alpha.clamp_min(1e-6)
    return replace(picture, pixels=pixels.clamp(0, 1), alpha=alpha)


def _resized(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    return interpolate(pixels[None], size, mode="bilinear", antialias=True, align_corners=False)[0]
