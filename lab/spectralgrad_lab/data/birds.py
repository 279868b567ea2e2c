"""Birds (CUB-200-2011) in the layout of its archive: lists of images, classes and the split."""

from __future__ import annotations

from pathlib import Path

import torch

from .column_files import key_values
from .dataset import Dataset, Split
from .errors import DataError, find_folder
from .folders import LAYOUT, MEAN, STD, read_folders
from .image_files import ImageFiles

SOURCE = (
    "Birds is CUB-200-2011, at https://www.vision.caltech.edu/datasets/cub_200_2011/; unpack it (tar xf); it makes "
    "CUB_200_2011/ with images.txt and images/."
)
_SIZE = 448


def read_birds(folder: Path) -> Dataset:
    """Read Birds from the folder in its archive, from the folder that contains it, or from class folders.

    Raises:
        DataError: a file is missing, or the lists contradict each other.
    """
    if (folder / "train").is_dir():
        return read_folders(folder, "birds", SOURCE, resize=_SIZE, crop=_SIZE, augmentation="fine-grained")
    folder = find_folder(folder, ("CUB_200_2011",), ("images.txt",), f"{SOURCE} {LAYOUT}")
    names = key_values(folder / "images.txt", SOURCE)
    classes = key_values(folder / "classes.txt", SOURCE)
    number = {key: label for label, key in enumerate(classes)}
    labels = _matched(folder / "image_class_labels.txt", names, set(number))
    training = _matched(folder / "train_test_split.txt", names, {"0", "1"})

    def split(flag: str) -> Split:
        chosen = [key for key in names if training[key] == flag]
        files = ImageFiles(folder / "images", [names[key] for key in chosen], resize=_SIZE, crop=_SIZE)
        return Split(files, torch.tensor([number[labels[key]] for key in chosen]))

    return Dataset("birds", split("1"), split("0"), tuple(classes.values()), MEAN, STD, "fine-grained")


def _matched(path: Path, names: dict[str, str], allowed: set[str]) -> dict[str, str]:
    values = key_values(path, SOURCE)
    for key in names:
        if values.get(key) not in allowed:
            raise DataError(f"expected a known value for image {key}, got {values.get(key)}", path=path, source=SOURCE)
    return values
