"""CIFAR-10 and CIFAR-100 from their standard binary files: per image label bytes, then 3 × 32 × 32 pixels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from .dataset import Dataset, Split
from .errors import DataError, find_folder, require_file
from .labels import checked_labels

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # the code of the papers uses them for both datasets
_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Layout:
    """The files of a dataset.

    Args:
        name: of the dataset.
        folder: name of the folder in its archive.
        train: names of the training files.
        test: name of the test file.
        names: name of the file with the class names.
        classes: number of classes.
        label_bytes: number of bytes before the pixels of a record; the last one is the label.
        source: where to get the dataset.
        records: number of images in all training files.
        test_records: number of images in the test file.

    Example:
        >>> CIFAR10.label_bytes, CIFAR100.label_bytes
        (1, 2)
    """

    name: str
    folder: str
    train: tuple[str, ...]
    test: str
    names: str
    classes: int
    label_bytes: int
    source: str
    records: int = 50_000
    test_records: int = 10_000


def _source(number: int, unpacked: str) -> str:
    return (
        f"CIFAR-{number} is at https://www.cs.toronto.edu/~kriz/cifar.html: take the binary version, "
        f"cifar-{number}-binary.tar.gz, and unpack it (tar xf); it makes {unpacked}/."
    )


CIFAR10 = Layout(
    name="cifar10",
    folder="cifar-10-batches-bin",
    train=tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    test="test_batch.bin",
    names="batches.meta.txt",
    classes=10,
    label_bytes=1,
    source=_source(10, "cifar-10-batches-bin"),
)
CIFAR100 = Layout(
    name="cifar100",
    folder="cifar-100-binary",
    train=("train.bin",),
    test="test.bin",
    names="fine_label_names.txt",
    classes=100,
    label_bytes=2,
    source=_source(100, "cifar-100-binary"),
)


def read_cifar(layout: Layout, folder: Path) -> Dataset:
    """The dataset from the folder of its files, or from the folder that this one was unpacked in.

    Raises:
        DataError: a file is missing, has another size, a label that does not exist, or classes of unequal size.
    """
    folder = find_folder(folder, (layout.folder,), (*layout.train, layout.test), _advice(layout, folder))
    train, test = [folder / name for name in layout.train], [folder / layout.test]
    for paths, count in ((train, layout.records), (test, layout.test_records)):
        _check_sizes(paths, count // len(paths), layout)
    names = _names(folder, layout)
    splits = _split(train, layout.records, layout), _split(test, layout.test_records, layout)
    for split, paths in zip(splits, (train, test), strict=True):
        _check_balance(split, paths, layout)
    return Dataset(layout.name, *splits, names, MEAN, STD, "crop-flip")


def _check_sizes(paths: list[Path], count: int, layout: Layout) -> None:
    size = count * (layout.label_bytes + _PIXELS)
    for path in paths:
        got = require_file(path, layout.source).stat().st_size
        if got != size:
            raise DataError(f"expected {size} bytes ({count} records), got {got}", path=path, source=layout.source)


def _split(paths: list[Path], count: int, layout: Layout) -> Split:
    images, labels = np.empty((count, _PIXELS), np.uint8), []
    each = count // len(paths)
    for number, path in enumerate(paths):
        records = np.fromfile(path, dtype=np.uint8).reshape(each, -1)
        labels.append(checked_labels(records[:, layout.label_bytes - 1], layout.classes, path, layout.source))
        images[number * each : (number + 1) * each] = records[:, layout.label_bytes :]
    return Split(torch.from_numpy(images).view(count, 3, 32, 32), torch.cat(labels))


def _check_balance(split: Split, paths: list[Path], layout: Layout) -> None:
    """Check that all classes have the same size, which fails for a damaged file and for the same file given twice."""
    each = len(split) // layout.classes
    counts = split.labels.bincount(minlength=layout.classes)
    wrong = (counts != each).nonzero()[:, 0].tolist()
    if wrong:
        files = ", ".join(path.name for path in paths[1:])
        said = f"expected {each} images per class, got {int(counts[wrong[0]])} of class {wrong[0]}"
        problem = f"{said}: damaged, or not what its name says{f'; or {files} is' if files else ''}"
        raise DataError(problem, path=paths[0], source=layout.source)


def _names(folder: Path, layout: Layout) -> tuple[str, ...]:
    path = require_file(folder / layout.names, layout.source)
    names = tuple(path.read_text("utf-8", errors="replace").split())
    if len(names) != layout.classes:
        problem = f"expected {layout.classes} names of classes, got {len(names)}"
        raise DataError(problem, path=path, source=layout.source)
    return names


def _advice(layout: Layout, folder: Path) -> str:
    """Where to get the files, and what to do with files in another format."""
    for place in (folder, folder / layout.folder.replace("-bin", "-py").removesuffix("ary")):
        if any((place / name).is_file() for name in ("data_batch_1", "train")):
            return f"{place} contains the Python version, which is pickled and not supported. {layout.source}"
    for archive in sorted(folder.glob("cifar-*-binary.tar.gz")) if folder.is_dir() else []:
        return f"{archive.name} has not been unpacked: run tar xf. {layout.source}"
    return layout.source
