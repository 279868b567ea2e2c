"""A dataset: two splits, class names, and how images are normalized and augmented."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from .augmentation import resolve
from .errors import DataError
from .image_files import ImageFiles
from .labels import balanced_subset


@dataclass(frozen=True)
class Split:
    """Images with labels.

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
            raise DataError(f"Split: expected one label per image, got {len(self.images)} and {len(self.labels)}")

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, size: int) -> Split:
        """A deterministic subset of ``size`` images, as balanced over the classes as the data allow."""
        if not 1 <= size <= len(self):
            raise DataError(f"expected a train_size or test_size from 1 to {len(self)}, got {size}")
        chosen = balanced_subset(self.labels, size)
        return Split(self.images[chosen], self.labels[chosen])

    def size(self, augmentation: str) -> int:
        """The side length of the images that a network receives."""
        crop = resolve(augmentation).crop
        if crop is not None:
            return crop
        return self.images.crop if isinstance(self.images, ImageFiles) else self.images.shape[-1]


@dataclass(frozen=True)
class Dataset:
    """A dataset as :func:`load` returns it.

    Args:
        name: as in ``DATASETS``.
        train: training images.
        test: test images.
        classes: class names; a label is an index into them.
        mean: of each channel, for pixels from 0 to 1.
        std: of each channel.
        augmentation: the default augmentation, a name in ``AUGMENTATIONS``.

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
        """Number of channels."""
        return len(self.mean)

    @property
    def image_size(self) -> int:
        """The side length of the images that a network receives with the default augmentation."""
        return self.train.size(self.augmentation)

    def smaller(self, train_size: int | None, test_size: int | None = None) -> Dataset:
        """The dataset with a balanced subset of its images; None keeps all of them."""
        train = self.train if train_size is None else self.train.first(train_size)
        test = self.test if test_size is None else self.test.first(test_size)
        return replace(self, train=train, test=test)
