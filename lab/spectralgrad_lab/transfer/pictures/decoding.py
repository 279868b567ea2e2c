"""Image files to samples, by Pillow; whatever is wrong with a file is one line that names it."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms, UnidentifiedImageError
from PIL.ImageFile import ImageFile

from ...data.image_files import FORMATS, pillow_formats
from .deep_samples import read_deep
from .errors import PictureError, PictureWarning
from .metadata import kept_exif, upright
from .samples import Samples

MAX_PIXELS = 2**27  # 134 megapixels: 0.4 GB as 8-bit RGB
_LOCK = threading.RLock()  # the limit of Pillow and the warning filters belong to the process


def read_samples(path: Path | str, *, max_pixels: int = MAX_PIXELS, about: int | None = None) -> Samples:
    """Read an image file: the first frame, upright.

    Palettes, CMYK and other colour models become RGB. A CMYK image is converted with its ICC profile if it has one;
    any other profile is kept, and not applied.

    Args:
        path: the file.
        max_pixels: largest number of pixels to decode. A small file can claim to be huge; such a file is refused
            before memory is allocated.
        about: a JPEG may be decoded at a fraction of its size, with the longer side at least this long.

    Raises:
        PictureError: the file is missing, empty, not an image, damaged, truncated or too large.

    Example:
        >>> from spectralgrad_lab.transfer.pictures.shipped import art_path
        >>> read_samples(art_path("cat")).values.shape
        (300, 451, 3)
    """
    path = Path(path)
    _require_content(path)
    with _LOCK, _decoding(path) as kept, _opened(path, max_pixels) as image:
        if about is not None:
            image.draft(image.mode, (about, about))
        values, profile = _values(image, path, max_pixels)
        samples = Samples(upright(values, image), profile, kept_exif(image))
    for warning in kept:  # only now: a filter that turns warnings into errors must not look like a damaged file
        warnings.warn(warning, stacklevel=2)
    return samples


def read_size(path: Path | str, *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Height and width as the header of an image file has them: nothing is decoded, and nothing turned upright.

    Raises:
        PictureError: the file is missing, empty, not an image, or too large.

    Example:
        >>> from spectralgrad_lab.transfer.pictures.shipped import art_path
        >>> read_size(art_path("cat"))
        (300, 451)
    """
    path = Path(path)
    _require_content(path)
    with _LOCK, _decoding(path), _opened(path, max_pixels) as image:
        return image.height, image.width


def _require_content(path: Path) -> None:
    problem = (
        "no such file"
        if not path.exists()
        else "is a folder; expected an image file"
        if path.is_dir()
        else "not a file"
        if not path.is_file()
        else "the file is empty"
        if path.stat().st_size == 0
        else None
    )
    if problem:
        raise PictureError(path, problem)


@contextmanager
def _decoding(path: Path) -> Iterator[list[PictureWarning]]:
    """A context for Pillow: its errors become :class:`PictureError`, its warnings are dropped, ours are returned."""
    ours: list[PictureWarning] = []
    before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # :func:`_opened` applies our limit
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield ours
        ours += [w.message for w in caught if isinstance(w.message, PictureWarning)]
    except PictureError:
        raise
    except UnidentifiedImageError as problem:
        raise PictureError(path, f"not an image, or not in a known format ({', '.join(FORMATS)})") from problem
    except PermissionError as problem:
        raise PictureError(path, "permission denied") from problem
    except MemoryError as problem:
        raise PictureError(path, "not enough memory to decode the image") from problem
    except Exception as problem:  # damaged files make the decoders raise errors of any kind
        raise PictureError(path, f"cannot be decoded: {_reason(problem)}") from problem
    finally:
        Image.MAX_IMAGE_PIXELS = before


def _reason(problem: Exception) -> str:
    text = " ".join(str(problem).split())
    return "the data are damaged" if not text or text.startswith("decoder error") else text


@contextmanager
def _opened(path: Path, max_pixels: int) -> Iterator[ImageFile]:
    """Open an image, which reads its header, and check what the header says.

    Pillow gets an open file and not its name, because it would map an uncompressed TIFF into memory by its name, and
    does so with the wrong size if the image is to be turned (seen in Pillow 13.0).
    """
    with path.open("rb") as file, Image.open(file, formats=pillow_formats()) as image:
        pixels = image.width * image.height
        if pixels > max_pixels:
            size = f"{image.width}×{image.height} = {pixels} pixels"
            way = "raise --max-pixels (transfer color) or max_pixels= (in Python), or reduce the image first"
            raise PictureError(path, f"{size} exceed the limit of {max_pixels}; if you trust the file, {way}")
        _require_all_strips(image, path)
        yield image


def _require_all_strips(image: Any, path: Path) -> None:
    """Raise for a truncated TIFF; libtiff would find out too, but writes to stderr when it does."""
    tags = getattr(image, "tag_v2", {})
    for offsets, lengths in ((273, 279), (324, 325)):
        ends = (a + b for a, b in zip(tags.get(offsets, ()), tags.get(lengths, ()), strict=False))
        if max(ends, default=0) > path.stat().st_size:
            raise PictureError(path, "cannot be decoded: the file is truncated")


def _values(image: Any, path: Path, max_pixels: int) -> tuple[npt.NDArray[Any], bytes | None]:
    """The samples (H, W, C), and the profile that belongs to them."""
    profile = image.info.get("icc_profile")
    deep = read_deep(image, lambda: _opened(path, max_pixels), path)
    if deep is not None:
        return deep, profile
    if image.mode == "F":
        raise ValueError("samples are floating-point numbers; convert the image to 16 or 8 bits first")
    if image.mode == "CMYK":
        return np.array(_without_black(image, profile)), None
    mode = _mode(image)
    values = np.array(image if image.mode == mode else image.convert(mode))
    return values if values.ndim == 3 else values[..., None], profile


def _mode(image: Any) -> str:
    """The mode with the same content among grey and RGB, each with or without alpha."""
    grey = image.mode in ("1", "L", "LA", "La")
    alpha = "transparency" in image.info or image.mode in ("LA", "La", "PA", "RGBA", "RGBa")
    return ("LA" if alpha else "L") if grey else ("RGBA" if alpha else "RGB")


def _without_black(image: Any, profile: bytes | None) -> Any:
    """A CMYK image as sRGB, by its profile if it has a valid one."""
    if profile:
        try:
            source, target = ImageCms.ImageCmsProfile(io.BytesIO(profile)), ImageCms.createProfile("sRGB")
            return ImageCms.profileToProfile(image, source, target, outputMode="RGB")
        except (ImageCms.PyCMSError, OSError):
            pass
    return image.convert("RGB")
