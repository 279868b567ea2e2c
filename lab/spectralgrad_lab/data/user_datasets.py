"""A user's own datasets: objects, or what ``module:callable`` returns, checked before training."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..import_by_name import keyword_parameters, load_callable
from .dataset import Dataset, Split
from .errors import DataError
from .folders import MEAN, STD
from .image_files import ImageFiles

_WANTED = (
    "expected a spectralgrad_lab.data.Dataset, or a pair (train, test), each a map-style torch Dataset of "
    "(image, label), a pair of tensors (images, labels) or a Split"
)
_CHUNK = 1024


def own_dataset(name: str, folder: Path | None) -> Dataset:
    """Call ``module:callable``, with ``folder=`` if it has that parameter.

    Raises:
        DataError: the module or callable does not exist, or does not return a dataset.
    """
    make = load_callable(name, "dataset", DataError)
    asked = "folder" in keyword_parameters(make)
    if folder is not None and not asked:
        raise DataError(f"dataset {name!r}: expected it to have a parameter `folder` for {folder}")
    try:
        value = make(folder=folder) if asked else make()
    except TypeError as problem:
        raise DataError(f"dataset {name!r}: expected a callable without further arguments: {problem}") from problem
    return as_dataset(value, name)


def as_dataset(value: Any, name: str = "own") -> Dataset:
    """Convert tensors or torch Datasets to a :class:`Dataset`.

    Images are uint8 from 0 to 255 or floating-point numbers of any range, with shape (C, H, W) or (H, W), all of the
    same shape; labels are whole numbers ≥ 0. Everything is read into memory once. Channels are normalized by the mean
    and standard deviation of the training images; there is no augmentation unless the run asks for one.

    Args:
        value: a :class:`Dataset`, or a pair of training and test images: torch Datasets of (image, label), pairs of
            tensors (images, labels), or :class:`Split` objects.
        name: of the dataset, unless the value has one.

    Raises:
        DataError: the value is invalid; the message says what was expected.

    Example:
        >>> images, labels = torch.rand(6, 3, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
        >>> data = as_dataset(((images, labels), (images, labels)))
        >>> data.channels, data.image_size, data.classes, len(data.train)
        (3, 8, ('0', '1', '2'), 6)
    """
    if isinstance(value, Dataset):
        return _checked(value)
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise DataError(f"{_WANTED}, got {type(value).__name__}")
    train, test = (_split(part, which) for part, which in zip(value, ("training", "test"), strict=True))
    count = 1 + max(int(labels.max()) if len(labels) else 0 for labels in (train.labels, test.labels))
    said = getattr(value[0], "classes", None)
    classes = tuple(map(str, said if isinstance(said, tuple | list) and len(said) >= count else range(count)))
    mean, std = _moments(train)
    return _checked(Dataset(name, train, test, classes, mean, std, "none"))


def fingerprint(data: Dataset) -> str:
    """Name and digest of images and labels, which identify a dataset object in the record of a run.

    Example:
        >>> from spectralgrad_lab.data import load
        >>> fingerprint(load("fashion", train_size=10, test_size=10))
        'fashion@dbb1842e'
    """
    digest = hashlib.sha256()
    for split in (data.train, data.test):
        images = split.images
        names = images.names if isinstance(images, ImageFiles) else ()
        digest.update("\n".join(map(str, names)).encode("utf-8", "surrogateescape"))
        for tensor in (split.labels, *([images] if isinstance(images, Tensor) else [])):
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy())  # type: ignore[arg-type]
    return f"{re.sub('[^A-Za-z0-9._-]+', '-', data.name) or 'own'}@{digest.hexdigest()[:8]}"


def _split(part: Any, which: str) -> Split:
    if isinstance(part, Split):
        return part
    if isinstance(part, tuple | list) and len(part) == 2 and all(isinstance(item, Tensor) for item in part):
        return _of_tensors(part[0], part[1], which)
    tensors = getattr(part, "tensors", None)  # of a TensorDataset
    if isinstance(tensors, tuple) and len(tensors) == 2:
        return _of_tensors(tensors[0], tensors[1], which)
    if not hasattr(part, "__getitem__") or not hasattr(part, "__len__"):
        raise DataError(f"{which} images: {_WANTED}, got {type(part).__name__}")
    images, labels = zip(*_items(part, which), strict=True) if len(part) else ((), ())
    if len({image.shape for image in images}) > 1:
        raise DataError(f"{which} images: expected one shape, got {tuple(images[0].shape)} and others")
    stacked = torch.stack(images) if images else torch.empty(0, 1, 1, 1)
    return _of_tensors(stacked, torch.tensor(labels, dtype=torch.int64), which)


def _items(part: Any, which: str) -> Iterator[tuple[Tensor, int]]:
    """Iterate over the images and labels of a map-style dataset."""
    for i in range(len(part)):
        item = part[i]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"{which} images: expected (image, label) at {i}, got {type(item).__name__}")
        image, label = item
        if not isinstance(image, Tensor):
            raise DataError(f"{which} images: expected a tensor (C, H, W) at {i}, got {type(image).__name__}")
        if isinstance(label, Tensor) and label.numel() == 1 and not label.is_floating_point():
            label = int(label)
        if isinstance(label, bool) or not hasattr(label, "__index__"):
            raise DataError(f"{which} images: expected a whole number for a label at {i}, got {label!r}")
        yield image, int(label)


def _of_tensors(images: Tensor, labels: Tensor, which: str) -> Split:
    images = images.unsqueeze(1) if images.dim() == 3 else images
    if labels.is_floating_point() or labels.dtype.is_complex or labels.dim() != 1:
        raise DataError(f"{which} labels: expected whole numbers (N,), got {labels.dtype} {tuple(labels.shape)}")
    if images.is_floating_point():  # Batches expects pixels from 0 to 255
        images = images.to(torch.float32) * 255
    return Split(images.detach().cpu(), labels.detach().cpu().to(torch.int64))


def _checked(data: Dataset) -> Dataset:
    for which, split in (("training", data.train), ("test", data.test)):
        images, labels = split.images, split.labels
        if not len(split):
            raise DataError(f"{which} images: expected at least one, got none")
        if isinstance(images, Tensor):
            if images.dim() != 4 or images.dtype not in (torch.uint8, torch.float32):
                got = f"{images.dtype} {tuple(images.shape)}"
                raise DataError(f"{which} images: expected uint8 or floating-point (N, C, H, W), got {got}")
            if images.dtype == torch.float32 and not bool(torch.isfinite(images).all()):
                raise DataError(f"{which} images: expected finite numbers, got NaN or infinity")
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= len(data.classes):
            raise DataError(f"{which} labels: expected 0 to {len(data.classes) - 1}, got {low} to {high}")
    shapes = [s.images.shape[1:] for s in (data.train, data.test) if isinstance(s.images, Tensor)]
    if len(set(shapes)) > 1:
        got = f"{tuple(shapes[0])} and {tuple(shapes[1])}"
        raise DataError(f"expected training and test images of one shape, got {got}")
    return data


def _moments(split: Split) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel for pixels from 0 to 1; 1 for a constant channel."""
    images = split.images
    if not isinstance(images, Tensor) or images.dim() != 4 or not len(images):
        return MEAN, STD
    count, chunks = images[:, 0].numel(), images.split(_CHUNK)
    mean = torch.stack([(chunk.double() / 255).sum((0, 2, 3)) for chunk in chunks]).sum(0) / count
    squares = [((chunk.double() / 255 - mean.view(-1, 1, 1)) ** 2).sum((0, 2, 3)) for chunk in chunks]
    std = (torch.stack(squares).sum(0) / count).sqrt()
    return tuple(mean.tolist()), tuple(torch.where(std > 0, std, 1.0).tolist())
