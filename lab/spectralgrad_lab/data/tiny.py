"""Tiny ImageNet: 200 classes, 64 × 64 pixels; training images in folders, validation images in a list."""

from __future__ import annotations

from pathlib import Path

import torch

from .column_files import rows
from .dataset import Dataset, Split
from .errors import DataError, find_folder
from .folders import read_split
from .image_files import ImageFiles

MEAN, STD = (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)
SOURCE = (
    "Tiny ImageNet is at http://cs231n.stanford.edu/tiny-imagenet-200.zip; unpack it (unzip); it makes "
    "tiny-imagenet-200/."
)
_SIZE = 64


def read_tiny_imagenet(folder: Path) -> Dataset:
    """Read Tiny ImageNet from the folder in its archive, or from the folder that contains it.

    Raises:
        DataError: a file or folder is missing, or the list of validation images names an unknown class.
    """
    folder = find_folder(folder, ("tiny-imagenet-200",), ("wnids.txt",), SOURCE)
    classes = tuple(row[0] for row in rows(folder / "wnids.txt", 1, SOURCE))
    find_folder(folder, (), ("train",), SOURCE)
    train = read_split(folder / "train", classes, SOURCE, resize=_SIZE, crop=_SIZE, inner="images")
    return Dataset("tiny-imagenet", train, _validation(folder / "val", classes), classes, MEAN, STD, "rotate-flip")


def _validation(folder: Path, classes: tuple[str, ...]) -> Split:
    path = folder / "val_annotations.txt"
    table = rows(path, 2, SOURCE)
    number = {name: label for label, name in enumerate(classes)}
    keys = [row[1].split()[0] for row in table]
    unknown = next((key for key in keys if key not in number), None)
    if unknown is not None:
        raise DataError(f"unknown class {unknown!r}", path=path, source=SOURCE)
    files = ImageFiles(folder / "images", [row[0] for row in table], resize=_SIZE, crop=_SIZE)
    return Split(files, torch.tensor([number[key] for key in keys]))
