"""Folders of images, a folder a class: ImageNet, Birds, Dogs, Cars, or anybody's own."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from .dataset import Dataset, Split
from .errors import DataError, found
from .image_files import ImageFiles

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".webp")
LAYOUT = "Wanted: train/CLASS/IMAGE and val/CLASS/IMAGE (or test/), with a folder a class."


def read_folders(folder: Path, name: str, source: str, *, resize: int, crop: int, augmentation: str) -> Dataset:
    """Images in ``train/`` and ``val/`` or ``test/``, with a folder a class in both.

    Raises:
        DataError: a folder is missing or empty, or the test images have a class that the training images do not.
    """
    source = f"{LAYOUT} {source}"
    found(folder, (), ("train",), source)
    held_out = found(folder, (), ("val", "test"), source)
    classes = class_names(folder / "train", source)
    part = "val" if (held_out / "val").exists() else "test"
    train, test = (read_split(folder / which, classes, source, resize=resize, crop=crop) for which in ("train", part))
    return Dataset(name, train, test, classes, MEAN, STD, augmentation)


def class_names(folder: Path, source: str) -> tuple[str, ...]:
    """The names of the folders in a folder, sorted."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        raise DataError("holds no folder of a class", path=folder, source=source)
    return tuple(names)


def read_split(
    folder: Path, classes: tuple[str, ...], source: str, *, resize: int, crop: int, inner: str = ""
) -> Split:
    """The images of a folder with a folder a class; in each of those, of the folder ``inner``."""
    unknown = sorted(set(class_names(folder, source)) - set(classes))
    if unknown:
        raise DataError(f"holds a class without training images: {unknown[0]}", path=folder, source=source)
    names, labels = [], []
    for label, name in enumerate(classes):
        below = f"{name}/{inner}".rstrip("/")
        files = image_names(folder / below, source)
        names += [f"{below}/{file}" for file in files]
        labels += [label] * len(files)
    return Split(ImageFiles(folder, names, resize=resize, crop=crop), torch.tensor(labels))


def image_names(folder: Path, source: str) -> list[str]:
    """The images in a folder, sorted."""
    if not folder.is_dir():
        raise DataError("no such folder", path=folder, source=source)
    names = sorted(name for name in os.listdir(folder) if name.lower().endswith(ENDINGS) and not name.startswith("."))
    if not names:
        raise DataError(f"holds no image ({', '.join(ENDINGS)})", path=folder, source=source)
    return names
