"""Files that Pillow cannot write: colours with 16 bits per sample as PNG, TIFF and PPM, and EXIF data in a small TIFF.

Pillow writes colours with 8 bits only, and a TIFF either with all EXIF data or compressed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .samples import Samples

_ROWS = 64  # rows compressed at a time
_TIFF_HEAD = b"II*\0\x08\0\0\0"
_PNG_COLORS = {1: 0, 2: 4, 3: 2, 4: 6}


def deep_png(samples: Samples) -> bytes:
    """Return a PNG file of 16-bit samples.

    Rows are stored as differences from the row above (filter 2), which deflate compresses better than the values.

    Reference: Portable Network Graphics Specification, third edition, sections 9 and 11.
    """
    height, width, channels = samples.values.shape
    parts = [b"\x89PNG\r\n\x1a\n"]
    parts += _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, _PNG_COLORS[channels], 0, 0, 0))
    if samples.fitting_profile:
        parts += _chunk(b"iCCP", b"ICC\0\0" + zlib.compress(samples.fitting_profile))
    if samples.exif:
        parts += _chunk(b"eXIf", samples.exif.removeprefix(b"Exif\0\0"))
    for data in _deflated(_filtered(samples.values)):
        parts += _chunk(b"IDAT", data)
    return b"".join([*parts, *_chunk(b"IEND", b"")])


def tiff(samples: Samples) -> bytes:
    """Return a TIFF file, deflated; samples are stored as differences from their left neighbours (predictor 2).

    Grey with alpha and 16 bits is stored as RGB with alpha, because Pillow cannot read it otherwise.

    Reference: TIFF, revision 6.0, Adobe 1992, sections 2, 8, 14 and 18.
    """
    deep_grey = samples.bits == 16 and samples.values.shape[2] == 2
    values = samples.values[..., [0, 0, 0, 1]] if deep_grey else samples.values
    height, width, channels = values.shape
    data = b"".join(_deflated(_differences(values)))
    tags = _exif_tags(samples.exif)
    tags[256], tags[257], tags[258], tags[259], tags[317] = width, height, (samples.bits,) * channels, 8, 2
    tags[262], tags[277], tags[278], tags[284] = 1 if channels < 3 else 2, channels, height, 1
    tags[273], tags[279] = 0, len(data)  # Pillow adds the length of what stands before the data
    if channels in (2, 4):
        tags[338] = 2
    if samples.fitting_profile:
        tags[34675] = samples.fitting_profile
    return _TIFF_HEAD + tags.tobytes(len(_TIFF_HEAD)) + data


def deep_ppm(samples: Samples) -> bytes:
    """Return a binary PPM or, for grey, PGM file of 16-bit samples."""
    height, width, channels = samples.values.shape
    return b"P%d\n%d %d\n65535\n" % (5 if channels == 1 else 6, width, height) + samples.values.astype(">u2").tobytes()


def _exif_tags(data: bytes) -> Any:
    """The tags of a TIFF file with these EXIF data."""
    from PIL import Image
    from PIL.TiffImagePlugin import ImageFileDirectory_v2

    tags, exif = ImageFileDirectory_v2(ifh=_TIFF_HEAD), Image.Exif()
    exif.load(data)
    for tag, value in exif.items():
        tags[tag] = exif.get_ifd(tag) or value
    return tags


def _differences(values: npt.NDArray[Any]) -> Iterator[bytes]:
    for y in range(0, len(values), _ROWS):
        rows = values[y : y + _ROWS].astype(values.dtype.newbyteorder("<"))
        rows[:, 1:] -= values[y : y + _ROWS, :-1]  # modulo 2^bits
        yield rows.tobytes()


def _filtered(values: npt.NDArray[Any]) -> Iterator[bytes]:
    above = np.zeros((1, values.shape[1] * values.shape[2] * 2), np.uint8)
    for y in range(0, len(values), _ROWS):
        rows = values[y : y + _ROWS].astype(">u2").reshape(-1, values.shape[1] * values.shape[2]).view(np.uint8)
        lines = np.full((len(rows), 1 + rows.shape[1]), 2, np.uint8)
        lines[:, 1:] = rows - np.concatenate([above, rows[:-1]])  # modulo 256
        above = rows[-1:]
        yield lines.tobytes()


def _deflated(parts: Iterator[bytes]) -> Iterator[bytes]:
    pack = zlib.compressobj(6)
    for part in parts:
        if data := pack.compress(part):
            yield data
    yield pack.flush()


def _chunk(name: bytes, data: bytes) -> list[bytes]:
    return [struct.pack(">I", len(data)), name, data, struct.pack(">I", zlib.crc32(data, zlib.crc32(name)))]
