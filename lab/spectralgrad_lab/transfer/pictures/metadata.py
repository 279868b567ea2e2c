"""Which EXIF data of an image are kept, and how it is turned upright."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL import Image

ORIENTATION = 0x0112
# What describes the picture rather than the file: description, camera, resolution, software, date, artist, copyright.
# A thumbnail would show the old colours; positions and sizes of the samples would describe the old file.
_KEPT = (0x010E, 0x010F, 0x0110, 0x011A, 0x011B, 0x0128, 0x0131, 0x0132, 0x013B, 0x013C, 0x8298)
_EXPOSURE, _PLACE = 0x8769, 0x8825
_SIZES = (0xA002, 0xA003, 0xA005)  # width, height, and the pointer to a table about the file format

# What the values 2 to 8 of the tag mean; arrays are (H, W, C).
_UPRIGHT: dict[int, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    2: lambda values: values[:, ::-1],
    3: lambda values: values[::-1, ::-1],
    4: lambda values: values[::-1],
    5: lambda values: values.swapaxes(0, 1),
    6: lambda values: values[::-1].swapaxes(0, 1),
    7: lambda values: values[::-1, ::-1].swapaxes(0, 1),
    8: lambda values: values[:, ::-1].swapaxes(0, 1),
}


def upright(values: npt.NDArray[Any], image: Image.Image) -> npt.NDArray[Any]:
    """Turn the samples (H, W, C) of a loaded image as its orientation tag says.

    Pillow turns TIFF files itself when it loads them and removes the tag, so the tag is read after loading.
    """
    turn = _UPRIGHT.get(_read(image).get(ORIENTATION, 1))
    return values if turn is None else np.ascontiguousarray(turn(values))


def kept_exif(image: Image.Image) -> bytes:
    """Return the EXIF data that still hold for a recoloured image; empty if there are none or they are damaged."""
    from PIL import Image

    exif, kept = _read(image), Image.Exif()
    try:
        kept.update({tag: exif[tag] for tag in _KEPT if tag in exif})
        for table in (_EXPOSURE, _PLACE):
            entries = {tag: value for tag, value in exif.get_ifd(table).items() if tag not in _SIZES}
            if entries:
                kept[table] = entries
        return kept.tobytes() if len(kept) else b""
    except Exception:  # damaged tables raise errors of any kind; the picture does not depend on them
        return b""


def _read(image: Image.Image) -> Any:
    try:
        return image.getexif()
    except Exception:  # as above
        return {}
