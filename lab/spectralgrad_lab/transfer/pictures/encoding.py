"""Samples to image files, written atomically; the format follows from the suffix."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from spectralgrad.io import files
from spectralgrad.io.files import said, write_bytes

from . import format_writers
from .errors import PictureError, PictureWarning
from .samples import Samples

_SUFFIXES = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP", ".tif": "TIFF", ".tiff": "TIFF"}
_SUFFIXES |= {".bmp": "BMP", ".ppm": "PPM", ".pnm": "PPM"}
_WITH_ALPHA = ("PNG", "WEBP", "TIFF")
_DEEP = {"PNG": format_writers.deep_png, "TIFF": format_writers.tiff, "PPM": format_writers.deep_ppm}
_OPTIONS: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 95, "subsampling": 0},
    "WEBP": {"quality": 95, "exact": True},  # exact: keeps the colours of transparent pixels
}
_LARGEST_JPEG_EXIF = 65533


def require_writable(path: Path | str, inputs: Iterable[Path] = ()) -> Path:
    """Return the path if an image can be written there, so that minutes of work are not lost.

    Args:
        path: the file to write.
        inputs: files that must not be overwritten.

    Raises:
        PictureError: the suffix is unknown, the folder does not exist or is not writable, or it is one of the inputs.

    Example:
        >>> require_writable("cat.gif")
        Traceback (most recent call last):
        spectralgrad_lab.transfer.pictures.errors.PictureError: cat.gif: cannot write the format '.gif'; choose from
        .png, .jpg, .jpeg, .webp, .tif, .tiff, .bmp, .ppm, .pnm
    """
    path = Path(path)
    if not is_writable_format(path):
        named = f"the format {path.suffix!r}" if path.suffix else "a file without a suffix"
        raise PictureError(path, f"cannot write {named}; choose from {', '.join(_SUFFIXES)}")
    folder = path.absolute().parent
    if not folder.is_dir():
        parent = path.parent
        why = f"{parent} is not a folder" if folder.exists() else f"the folder {parent} does not exist; create it first"
        raise PictureError(path, f"cannot be written: {why}")
    if path.is_dir():
        raise PictureError(path, "cannot be written: is a folder")
    try:
        files.require_writable(path)
    except OSError as problem:
        why = f"the folder {path.parent} is not writable: {problem.strerror or problem}"
        raise PictureError(path, f"cannot be written: {why}") from problem
    if any(path.exists() and other.exists() and os.path.samefile(path, other) for other in inputs):
        raise PictureError(path, "is an input file, which would be overwritten; choose another name with -o")
    return path


def is_writable_format(path: Path | str) -> bool:
    """True if files with this suffix can be written.

    Example:
        >>> is_writable_format("cat.JPG"), is_writable_format("cat.gif")
        (True, False)
    """
    return Path(path).suffix.lower() in _SUFFIXES


def write_samples(path: Path | str, samples: Samples) -> None:
    """Write an image file atomically.

    16 bits per sample are kept by PNG, TIFF and PPM; other formats get 8, with a warning.

    Args:
        path: the file; its suffix chooses the format. An existing file is replaced.
        samples: the image. Transparency can be written as PNG, WebP and TIFF; for other formats the image has to be
            opaque.

    Raises:
        PictureError: the suffix is unknown, the file cannot be written, or the format cannot hold the image.

    Example:
        >>> import tempfile
        >>> write_samples(Path(tempfile.mkdtemp()) / "black.png", Samples(np.zeros((2, 3, 1), np.uint8)))
    """
    path = require_writable(path)
    kind = _SUFFIXES[path.suffix.lower()]
    if samples.has_alpha and kind not in _WITH_ALPHA:
        if samples.values[..., -1].min() < samples.top:
            raise PictureError(path, f"{kind} has no transparency; write .png, .webp or .tiff instead")
        samples = Samples(samples.values[..., :-1], samples.profile, samples.exif)
    if samples.bits == 16 and kind not in _DEEP:
        warnings.warn(f"{path}: {kind} has 8 bits per sample; 16 were given", PictureWarning, stacklevel=2)
        samples = Samples(_halved(samples.values), samples.profile, samples.exif)
    try:
        own = samples.bits == 16 or kind == "TIFF"
        write_bytes(path, _DEEP[kind](samples) if own else _encoded(samples, kind, path))
    except OSError as problem:
        text = problem.strerror if problem.strerror else said(problem)
        raise PictureError(path, f"cannot be written: {text}") from problem


def _halved(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The nearest of 256 levels: 65535 = 257·255."""
    return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)


def _encoded(samples: Samples, kind: str, path: Path) -> bytes:
    options = dict(_OPTIONS.get(kind, {}))
    if samples.fitting_profile:
        options["icc_profile"] = samples.fitting_profile
    if samples.exif and kind in ("PNG", "JPEG", "WEBP"):
        if kind == "JPEG" and len(samples.exif) > _LARGEST_JPEG_EXIF:
            warnings.warn(f"{path}: the EXIF data are too long for JPEG and left out", PictureWarning, stacklevel=3)
        else:
            options["exif"] = samples.exif
    values = samples.values[..., 0] if samples.values.shape[2] == 1 else samples.values
    image = Image.fromarray(np.ascontiguousarray(values))
    buffer = io.BytesIO()
    try:
        image.save(buffer, kind, **options)
    except (ValueError, OSError) as problem:  # such as sizes that the format cannot hold
        raise PictureError(path, f"cannot be encoded as {kind}: {problem}") from problem
    return buffer.getvalue()
