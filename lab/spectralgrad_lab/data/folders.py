"""Image folders with one folder per class: ImageNet, Birds, Dogs, Cars, or a user's own."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from .dataset import Dataset, Split
from .errors import DataError, find_folder
from .image_files import ImageFiles

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".webp", ".tif", ".tiff", ".gif")
LAYOUT = "Expected: train/CLASS/IMAGE and val/CLASS/IMAGE (or test/), with one folder per class."


def read_folders(folder: Path, name: str, source: str, *, resize: int, crop: int, augmentation: str) -> Dataset:
    """Read images in ``train/`` and ``val/`` or ``test/``, each with one folder per class.

    Raises:
        DataError: a folder is missing or empty, or a class of the test images has no training images.
    """
    source = f"{LAYOUT} {source}"
    find_folder(folder, (), ("train",), source)
    held_out = find_folder(folder, (), ("val", "test"), source)
    classes = class_names(folder / "train", source)
    part = "val" if (held_out / "val").exists() else "test"
    train, test = (read_split(folder / which, classes, source, resize=resize, crop=crop) for which in ("train", part))
    return Dataset(name, train, test, classes, MEAN, STD, augmentation)


def class_names(folder: Path, source: str) -> tuple[str, ...]:
    """The sorted names of the subfolders of a folder."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        raise DataError("contains no class folders", path=folder, source=source)
    return tuple(names)


def read_split(
    folder: Path, classes: tuple[str, ...], source: str, *, resize: int, crop: int, inner: str = ""
) -> Split:
    """Read a folder with one subfolder per class; images are in the subfolder ``inner`` of each class, if given."""
    unknown = sorted(set(class_names(folder, source)) - set(classes))
    if unknown:
        raise DataError(f"contains a class without training images: {unknown[0]}", path=folder, source=source)
    names, labels = [], []
    for label, name in enumerate(classes):
        below = f"{name}/{inner}".rstrip("/")
        files = image_names(folder / below, source)
        names += [f"{below}/{file}" for file in files]
        labels += [label] * len(files)
    return Split(ImageFiles(folder, names, resize=resize, crop=crop), torch.tensor(labels))


def image_names(folder: Path, source: str) -> list[str]:
    """The sorted names of the image files in a folder."""
    if not folder.is_dir():
        raise DataError("no such folder", path=folder, source=source)
    with os.scandir(folder) as entries:
        found = [e for e in entries if e.name.lower().endswith(ENDINGS) and not e.name.startswith(".")]
    if not found:
        raise DataError(f"contains no image ({', '.join(ENDINGS)})", path=folder, source=source)
    for entry in found:
        if not entry.is_file():  # opening a named pipe would wait for ever
            raise DataError("expected an image file, got something else; remove it", path=entry.path)
    return sorted(entry.name for entry in found)
