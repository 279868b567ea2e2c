"""Images with 16 bits per sample; Pillow by itself returns only the upper 8 of colour images.

Pillow unpacks a 16-bit colour image into an 8-bit one by taking one of the two bytes of each sample; which one is
chosen by the byte order in the name of the raw mode. The image is decoded twice, once for each byte.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .errors import PictureWarning

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

    Reopen = Callable[[], AbstractContextManager[ImageFile]]

Array = npt.NDArray[Any]
_NATIVE = "L" if sys.byteorder == "little" else "B"
_OTHER = {"B": "L", "L": "B"}
_GREY = ("I", "I;16", "I;16B", "I;16L", "I;16N")
_COLORS = {f"{mode};16{order}" for mode in ("RGB", "RGBA") for order in "BLN"}


def read_deep(image: ImageFile, reopen: Reopen, path: Path) -> Array | None:
    """Return the samples of a 16-bit image as uint16 (H, W, C), or None if it has at most 8 bits.

    A 16-bit image in a layout that Pillow reduces to 8 bits gives None too, and a warning.

    Args:
        image: an image just opened; it is loaded.
        reopen: opens the same file again.
        path: the file, for warnings.

    Raises:
        ValueError: the samples have 32 bits, or 16 in separate planes, which Pillow would decode wrongly.
    """
    tags = getattr(image, "tag_v2", {})
    if tags.get(284) == 2 and max(tags.get(258, (1,))) > 8:
        raise ValueError("16-bit samples in separate planes are not supported; save the image with interleaved samples")
    if image.mode in _GREY:
        return _with_key(_grey(image), image)
    raw, largest = {_raw_mode(tile) for tile in image.tile}, _largest_of_netpbm(image)
    if raw == {"LA;16B"}:
        return _decoded(image, "RGBA").view(">u2").astype(np.uint16)
    if len(raw) == 1 and raw <= _COLORS:
        name, order = raw.pop().rsplit(";16", 1)
        return _with_key(_both_bytes(image, reopen, name, _NATIVE if order == "N" else order), image)
    if largest > 255 and image.tile[0].codec_name == "ppm":
        return _scaled(_both_bytes(image, reopen, "RGB", "B", codec="raw"), largest)
    if largest > 255 or any(";16" in mode for mode in raw):
        warnings.warn(f"{path}: 16 bits per sample, read as 8", PictureWarning, stacklevel=2)
    return None


def _both_bytes(image: ImageFile, reopen: Reopen, mode: str, order: str, codec: str = "") -> Array:
    """Samples (H, W, C) from the upper byte, which the ``order`` of the file selects, and from the lower."""
    upper = _decoded(image, f"{mode};16{order}", codec).astype(np.uint16)
    with reopen() as again:
        return (upper << 8) | _decoded(again, f"{mode};16{_OTHER[order]}", codec)


def _decoded(image: ImageFile, raw_mode: str, codec: str = "") -> Array:
    """Decode with another raw mode and, if given, another codec; the other arguments of each tile stay."""

    def changed(tile: Any) -> Any:
        if codec:
            return tile._replace(codec_name=codec, args=(raw_mode, 0, 1))
        return tile._replace(args=raw_mode if isinstance(tile.args, str) else (raw_mode, *tile.args[1:]))

    image.tile = [changed(tile) for tile in image.tile]
    return np.array(image)


def _grey(image: ImageFile) -> Array:
    """Grey samples (H, W, 1) of up to 16 bits, scaled to 16."""
    values = np.array(image)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("samples of 32 bits; convert the image to 16 or 8 bits first")
    tags = getattr(image, "tag_v2", {})
    grey = _scaled(values, 2 ** min(16, tags.get(258, (16,))[0]) - 1)
    return (65535 - grey if tags.get(262) == 0 else grey)[..., None]  # TIFF: 0 may be white


def _with_key(values: Array, image: ImageFile) -> Array:
    """Append alpha = 0 for pixels of the colour that a PNG declares transparent, 65535 elsewhere."""
    key = image.info.get("transparency")
    if key is None or values.shape[2] not in (1, 3):
        return values
    opaque = (values != np.asarray(key, dtype=np.uint16)).any(-1, keepdims=True)
    return np.concatenate([values, opaque * np.uint16(65535)], -1)


def _scaled(values: Array, largest: int) -> Array:
    if largest == 65535:
        return values.astype(np.uint16)
    return np.clip(np.rint(values * (65535 / largest)), 0, 65535).astype(np.uint16)


def _raw_mode(tile: Any) -> str:
    return str(tile.args if isinstance(tile.args, str) else tile.args[0]) if tile.args else ""


def _largest_of_netpbm(image: ImageFile) -> int:
    """The largest value that the header of a PPM file states; 0 for another format."""
    args = image.tile[0].args if image.format == "PPM" and image.tile else None
    return int(args[-1]) if isinstance(args, tuple) and isinstance(args[-1], int) else 0
