"""Image files, decoded by Pillow on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from spectralgrad.errors import SpectralError

from .augmentation import Augmentation, augmented
from .errors import DataError, require_file

if TYPE_CHECKING:
    from PIL import Image

# Formats of pictures; Pillow knows others, and some start another program to decode a file.
FORMATS = ("PNG", "JPEG", "WEBP", "AVIF", "TIFF", "BMP", "GIF", "PPM", "JPEG2000", "TGA")
_SOURCE = "Get the file again, or remove it from the dataset."


class ImageFiles:
    """A sequence of image files. An image is read only when it is requested.

    Args:
        root: the folder.
        names: paths relative to the folder, with forward slashes.
        resize: the shorter side after resizing (bilinear, antialiased).
        crop: the side of the square crop.

    Raises:
        DataError: a path leads out of the folder.
        SpectralError: Pillow is not installed.

    Example:
        >>> files = ImageFiles(Path("birds"), ["robin/1.jpg", "robin/2.jpg"], resize=448, crop=448)
        >>> len(files), files.names[1]
        (2, 'robin/2.jpg')
    """

    def __init__(self, root: Path, names: Sequence[str], *, resize: int, crop: int) -> None:
        if find_spec("PIL") is None:
            raise SpectralError("Image files need Pillow: pip install pillow")
        if not 1 <= crop <= resize:
            raise DataError(f"ImageFiles: expected 1 ≤ crop ≤ resize, got {crop} and {resize}")
        self.root, self.names, self.resize, self.crop = root, tuple(names), resize, crop
        for name in self.names:
            if name.startswith("/") or (".." in name and ".." in PurePosixPath(name).parts):
                raise DataError(f"a path leads out of the folder: {name!r}", path=root, source=_SOURCE)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, positions: Tensor) -> ImageFiles:
        """The files at these positions."""
        names = [self.names[i] for i in positions.tolist()]
        return ImageFiles(self.root, names, resize=self.resize, crop=self.crop)

    def read(self, position: int, how: Augmentation | None = None, place: Sequence[float] | None = None) -> Tensor:
        """Read an image as uint8 (3, crop, crop).

        Args:
            position: index of the file.
            how: overrides the sizes of the sequence.
            place: position of the crop, from (0, 0) for the top left to (1, 1) for the bottom right corner; None for
                the center.

        Raises:
            DataError: the file is missing or cannot be decoded.
        """
        resize, crop = self._sizes(how)
        image = _decoded(self.root / self.names[position], resize)
        y, x = place or (None, None)
        left, top = _offset(image.width, crop, x), _offset(image.height, crop, y)
        pixels = np.array(image.crop((left, top, left + crop, top + crop)))
        return torch.from_numpy(pixels).permute(2, 0, 1)

    def batch(self, positions: Tensor, draws: Tensor, how: Augmentation) -> Tensor:
        """Read the images at these positions as uint8 (B, 3, H, W), augmented with the random numbers ``draws`` (B, 4).

        Images are resized and cropped first; the rest of the augmentation follows.
        """
        own = how.resize is None
        places = [None] * len(positions) if own or how.centered else draws[:, :2].tolist()
        read = [self.read(i, None if own else how, place) for i, place in zip(positions.tolist(), places, strict=True)]
        _, size = self._sizes(None if own else how)
        images = torch.stack(read) if read else torch.empty(0, 3, size, size, dtype=torch.uint8)
        return augmented(images, draws, how if own else replace(how, resize=None, crop=None))

    def _sizes(self, how: Augmentation | None) -> tuple[int, int]:
        if how is None or how.resize is None:
            return self.resize, self.crop
        return how.resize, how.crop or how.resize


def pillow_formats() -> list[str]:
    """The formats of pictures that the installed Pillow can read."""
    from PIL import Image

    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


def _offset(length: int, crop: int, share: float | None) -> int:
    room = length - crop
    return round(room / 2) if share is None else min(int(share * (room + 1)), room)


def _decoded(path: Path, resize: int) -> Image.Image:
    """Decode to RGB with shorter side ``resize``. A much larger JPEG is decoded at a fraction of its size."""
    from PIL import Image

    require_file(path, _SOURCE)
    try:
        with Image.open(path, formats=pillow_formats()) as image:
            image.draft("RGB", (4 * resize, 4 * resize))
            rgb = image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as problem:
        raise DataError(f"cannot be decoded ({problem})", path=path, source=_SOURCE) from problem
    shorter = min(rgb.size)
    if shorter == resize:
        return rgb
    width, height = (max(resize, length * resize // shorter) for length in rgb.size)
    return rgb.resize((width, height), Image.Resampling.BILINEAR)
