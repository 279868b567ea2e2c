"""Batches whose content depends only on seed and epoch, not on the number of workers or processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from .augmentation import DRAWS, Augmentation, augmented, resolve
from .dataset import Split
from .errors import DataError
from .image_files import ImageFiles
from .prefetch import prefetched

Batch = tuple[Tensor, Tensor]


class Batches:
    """Normalized batches of a split.

    The order of an epoch and the random numbers of every image are drawn for the whole epoch from (seed, epoch). A
    global batch is a range of that order, and each process takes a range of the global batch, so that the parts of all
    processes together are the batch of a single process. A run can therefore be resumed in the middle of an epoch, and
    neither ``workers`` nor ``world`` changes any image.

    Args:
        split: the images.
        batch_size: images in a global batch.
        augmentation: a name in ``AUGMENTATIONS`` or an :class:`Augmentation`. ``"none"`` leaves images in memory
            unchanged and crops the center of image files. ``AUGMENTATIONS[name].evaluation`` is the deterministic
            counterpart.
        mean: of each channel, subtracted from pixels between 0 and 1.
        std: of each channel, divided by.
        shuffle: use a different order in each epoch; otherwise the order of the split.
        seed: a whole number ≥ 0.
        drop_last: drop the last batch if it is smaller than the others.
        rank: number of this process.
        world: number of processes. If it does not divide a batch, the parts differ by one image; if the last batch is
            smaller than ``world``, some parts are empty.
        workers: threads that prepare batches in advance; 0 prepares each batch when it is requested.

    Raises:
        DataError: an argument is out of range, or there is not a single batch.

    Example:
        >>> from spectralgrad_lab.data import load
        >>> data = load("fashion")
        >>> batches = Batches(data.train, 128, augmentation="crop-flip", mean=data.mean, std=data.std)
        >>> len(batches), batches.shape
        (31, (1, 28, 28))
        >>> images, labels = next(batches.epoch(0))
        >>> images.shape, images.dtype, labels.dtype
        (torch.Size([128, 1, 28, 28]), torch.float32, torch.int64)
        >>> last = list(batches.epoch(3))[-1]
        >>> torch.equal(next(batches.epoch(3, start=30))[0], last[0])
        True
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        *,
        augmentation: str | Augmentation = "none",
        mean: Sequence[float],
        std: Sequence[float],
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
        rank: int = 0,
        world: int = 1,
        workers: int = 0,
    ) -> None:
        self.split, self.batch_size, self.augmentation = split, batch_size, resolve(augmentation)
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.rank, self.world, self.workers = rank, world, workers
        self._mean, self._std = (255 * torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
        self._check()

    def _check(self) -> None:
        if self.batch_size < 1 or self.workers < 0 or self.seed < 0:
            got = f"{self.batch_size}, {self.workers} and {self.seed}"
            raise DataError(f"Batches: expected batch_size ≥ 1, workers ≥ 0 and seed ≥ 0, got {got}")
        if not 0 <= self.rank < self.world:
            raise DataError(f"Batches: expected 0 ≤ rank < world, got rank {self.rank} of {self.world}")
        if self.world > self.batch_size:
            got = f"got batch_size {self.batch_size} for {self.world}"
            raise DataError(f"Batches: expected at least one image per process, {got}")
        if len(self) == 0:
            cure = "drop_last=False" if len(self.split) else "more images"
            problem = f"Batches: {len(self.split)} images are too few for a batch of {self.batch_size}"
            raise DataError(f"{problem}; pass a smaller batch_size or {cure}")
        channels = 3 if isinstance(self.split.images, ImageFiles) else self.split.images.shape[1]
        if not len(self._mean) == len(self._std) == channels or not bool((self._std > 0).all()):
            problem = f"got {len(self._mean)} and {len(self._std)} for {channels} channels"
            raise DataError(f"Batches: expected a mean and a positive std per channel, {problem}")

    def __len__(self) -> int:
        whole, rest = divmod(len(self.split), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the images in a batch."""
        crop, images = self.augmentation.crop, self.split.images
        if crop is not None:
            return len(self._mean), crop, crop
        if isinstance(images, ImageFiles):
            return 3, images.crop, images.crop
        _, channels, height, width = images.shape
        return channels, height, width

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches (images (B, C, H, W) float32, labels (B,)) of an epoch, from batch ``start`` on."""
        if epoch < 0 or not 0 <= start <= len(self):
            raise DataError(f"Batches: expected epoch ≥ 0 and start from 0 to {len(self)}, got {epoch} and {start}")
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, epoch))
        count = len(self.split)
        order = torch.randperm(count, generator=generator) if self.shuffle else torch.arange(count)
        draws = torch.rand(count, DRAWS, generator=generator)
        make, steps = partial(self._batch, order, draws), range(start, len(self))
        return prefetched(make, steps, self.workers) if self.workers else map(make, steps)

    def _batch(self, order: Tensor, draws: Tensor, step: int) -> Batch:
        first = step * self.batch_size
        size = min(self.batch_size, len(order) - first)
        begin, end = (first + size * r // self.world for r in (self.rank, self.rank + 1))
        chosen = order[begin:end]
        images = self._images(chosen, draws[begin:end])
        return images.to(torch.float32).sub_(self._mean).div_(self._std), self.split.labels[chosen]

    def _images(self, chosen: Tensor, draws: Tensor) -> Tensor:
        images, how = self.split.images, self.augmentation
        if isinstance(images, ImageFiles):
            return images.batch(chosen, draws, how)
        return augmented(images.index_select(0, chosen), draws, how)


def mixed_seed(*numbers: int) -> int:
    """Combine whole numbers, such as seed and epoch, into one seed: neighboring numbers give unrelated streams.

    Example:
        >>> mixed_seed(0, 1) == mixed_seed(0, 1), mixed_seed(0, 1) == mixed_seed(1, 0)
        (True, False)
    """
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
