"""What a dataset is: two splits, names of classes, and how images are normalised and augmented."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from .augmentation import resolve
from .errors import DataError
from .image_files import ImageFiles
from .labels import balanced


@dataclass(frozen=True)
class Split:
    """Images and their labels.

    Args:
        images: uint8 (N, C, H, W) in memory, float32 in the same units of 1/255, or
            :class:`ImageFiles`, decoded when asked for.
        labels: int64 (N,).

    Example:
        >>> split = Split(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 0, 1, 1]))
        >>> len(split), split.first(2).labels.tolist()
        (4, [0, 1])
    """

    images: Tensor | ImageFiles
    labels: Tensor

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise DataError(f"Split: expected a label an image, got {len(self.images)} and {len(self.labels)}")

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, size: int) -> Split:
        """The first ``size`` images when classes take turns: as balanced as the data allow, and always the same."""
        if not 1 <= size <= len(self):
            raise DataError(f"expected a train_size or test_size from 1 to {len(self)}, got {size}")
        chosen = balanced(self.labels, size)
        return Split(self.images[chosen], self.labels[chosen])

    def size(self, augmentation: str) -> int:
        """The side of the images that a network sees."""
        crop = resolve(augmentation).crop
        if crop is not None:
            return crop
        return self.images.crop if isinstance(self.images, ImageFiles) else self.images.shape[-1]


@dataclass(frozen=True)
class Dataset:
    """A dataset as :func:`load` returns it.

    Args:
        name: as in ``DATASETS``.
        train: what to learn from.
        test: what to measure the error on.
        classes: their names; a label is a position here.
        mean: of each channel, pixels from 0 to 1.
        std: of each channel.
        augmentation: the papers' choice for these data, a name of ``AUGMENTATIONS``.

    Example:
        >>> from spectralgrad_lab.data import load
        >>> data = load("fashion")
        >>> data.channels, data.image_size, len(data.classes)
        (1, 28, 10)
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: str

    @property
    def channels(self) -> int:
        """How many channels an image has."""
        return len(self.mean)

    @property
    def image_size(self) -> int:
        """The side of the images that a network sees with the dataset's own augmentation."""
        return self.train.size(self.augmentation)

    def smaller(self, train_size: int | None, test_size: int | None = None) -> Dataset:
        """The dataset with a balanced part of its images; None for all."""
        train = self.train if train_size is None else self.train.first(train_size)
        test = self.test if test_size is None else self.test.first(test_size)
        return replace(self, train=train, test=test)
