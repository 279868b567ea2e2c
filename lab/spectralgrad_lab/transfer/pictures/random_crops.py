"""Random crops of the images in a folder; which ones depends only on seed and step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from ...data.augmentation import DRAWS, Augmentation, augmented
from ...data.batches import mixed_seed
from ...data.errors import DataError
from ...data.folders import image_names
from .decoding import read_size
from .errors import PictureError
from .picture import quantized, read_picture

MEMORY = 2**30
ALL = slice(None)
_SOURCE = "Expected a folder with image files."


class RandomCrops:
    """Random square crops, mirrored with probability 1/2, of the images in a folder.

    An image whose shorter side is longer than ``resize`` is reduced to it. The headers of all files are checked at
    once; an image is decoded when it is first used, and kept while there is memory.

    A batch is drawn for all processes together and each takes its part, so that neither a resumed run nor the number of
    processes changes any crop.

    Args:
        folder: with image files; subfolders are ignored.
        size: side of the crops.
        resize: the shorter side before cropping.
        seed: a whole number ≥ 0; different folders should have different ones.
        memory: bytes of images to keep.
        images: which of the images, in the order of their names (default: all).

    Raises:
        DataError: the folder does not exist or contains no image, or none of those chosen.
        PictureError: a file is not an image, or smaller than the crops.

    Example:
        >>> from spectralgrad_lab.transfer.pictures.shipped import art_path
        >>> crops = RandomCrops(art_path("cat").parent, size=32, resize=48)
        >>> len(crops), crops.batch(0, 4).shape
        (12, torch.Size([4, 3, 32, 32]))
        >>> torch.equal(crops.batch(7, 4)[2:], crops.batch(7, 4, rank=1, world=2))
        True
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        size: int,
        resize: int,
        seed: int = 0,
        memory: int = MEMORY,
        images: slice = ALL,
    ) -> None:
        self.files = [Path(folder) / name for name in image_names(Path(folder), _SOURCE)][images]
        if not self.files:
            raise DataError("contains too few images to choose from", path=Path(folder), source=_SOURCE)
        self.size, self.resize, self.seed = size, max(size, resize), seed
        self._how = Augmentation(crop=size, centered=False, flip=True)
        self._kept: dict[int, Tensor] = {}
        self._memory = memory
        for file in self.files:
            height, width = read_size(file)
            if min(height, width) < size:
                raise PictureError(file, f"{width}×{height} pixels are too few for crops of {size}×{size}; remove it")

    def __len__(self) -> int:
        return len(self.files)

    def batch(self, step: int, count: int, *, rank: int = 0, world: int = 1, dequantize: bool = False) -> Tensor:
        """The part of a process in the batch of a step.

        Args:
            step: number of the step.
            count: crops in the whole batch; a multiple of ``world``.
            rank: number of this process.
            world: number of processes.
            dequantize: replace each of the 256 levels by uniform random numbers in its interval, so that no region has
                exactly one colour. Instance normalization needs it: it amplifies the rounding errors of a gradient by
                1/√ε = 316 in every layer whose input is constant.

        Returns:
            float32 (count / world, 3, size, size), from 0 to 1.
        """
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, step))
        chosen = torch.randint(len(self), (count,), generator=generator)
        draws = torch.rand(count, DRAWS, generator=generator)
        part = slice(count * rank // world, count * (rank + 1) // world)
        crops = self._cropped(chosen[part].tolist(), draws[part]).float()
        if dequantize:
            noise = torch.rand(count, *crops.shape[1:], generator=generator)
            return (crops + noise[part]) / 256
        return crops / 255

    def _cropped(self, chosen: Sequence[int], draws: Tensor) -> Tensor:
        images = [augmented(self._image(i)[None], draw[None], self._how) for i, draw in zip(chosen, draws, strict=True)]
        return torch.cat(images)

    def _image(self, index: int) -> Tensor:
        """The image as uint8 (3, H, W)."""
        if index not in self._kept:
            image = reduced(read_picture(self.files[index]).rgb, self.resize)
            if image.nbytes > self._memory:
                return image
            self._kept[index] = image
            self._memory -= image.nbytes
        return self._kept[index]


def reduced(pixels: Tensor, shorter: int) -> Tensor:
    """Pixels (3, H, W) as uint8, with a shorter side of at most ``shorter`` (bilinear, antialiased).

    Example:
        >>> reduced(torch.rand(3, 20, 40), 10).shape
        torch.Size([3, 10, 20])
    """
    share = shorter / min(pixels.shape[1:])
    if share < 1:
        size = [max(shorter, round(length * share)) for length in pixels.shape[1:]]
        pixels = interpolate(pixels[None], size, mode="bilinear", antialias=True, align_corners=False)[0]
    return torch.from_numpy(quantized(pixels, 8))
