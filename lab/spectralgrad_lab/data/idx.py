"""IDX files, the format of MNIST and Fashion-MNIST: a big-endian header, then bytes."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import torch
from torch import Tensor

from .dataset import Dataset, Split
from .errors import DataError, find_folder, require_file
from .labels import checked_labels

CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
MEAN, STD = (0.2860,), (0.3530,)  # of the 60,000 training images
SOURCE = (
    "Fashion-MNIST is at https://github.com/zalandoresearch/fashion-mnist (four files *-ubyte.gz), and in Debian's "
    "package dataset-fashion-mnist."
)
_LARGEST = 2**31  # bytes; a header that promises more is damaged


def read_fashion_mnist(folder: Path, name: str = "fashion-mnist", augmentation: str = "crop-flip") -> Dataset:
    """Read Fashion-MNIST from its four IDX files, compressed or not, in ``folder`` or in torchvision's subfolder."""
    marks = ("train-images-idx3-ubyte.gz", "train-images-idx3-ubyte")
    folder = find_folder(folder, ("fashion-mnist", "FashionMNIST/raw"), marks, SOURCE)
    train, test = (_split(folder, part) for part in ("train", "t10k"))
    return Dataset(name, train, test, CLASSES, MEAN, STD, augmentation)


def _split(folder: Path, part: str) -> Split:
    images = read_idx(_plain_or_packed(folder / f"{part}-images-idx3-ubyte"), 3)
    path = _plain_or_packed(folder / f"{part}-labels-idx1-ubyte")
    labels = checked_labels(read_idx(path, 1).numpy(), len(CLASSES), path, SOURCE)
    if len(images) != len(labels):
        raise DataError(f"expected {len(images)} labels, one per image, got {len(labels)}", path=path, source=SOURCE)
    return Split(images.unsqueeze(1), labels)


def _plain_or_packed(path: Path) -> Path:
    return path if path.is_file() else require_file(path.with_name(f"{path.name}.gz"), SOURCE)


def read_idx(path: Path, dims: int) -> Tensor:
    """Read an IDX file, gzipped if its name ends in .gz, as a uint8 tensor of ``dims`` dimensions.

    Raises:
        DataError: the header is invalid, or does not agree with the length of the file.

    Example:
        >>> from spectralgrad_lab.data.embedded import FOLDER
        >>> read_idx(FOLDER / "t10k-images-idx3-ubyte.gz", 3).shape
        torch.Size([1000, 28, 28])
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            shape = _header(cast(BinaryIO, file), path, dims)
            size = math.prod(shape)
            content = file.read(size + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise DataError(f"damaged gzip file ({problem})", path=path, source=SOURCE) from problem
    if len(content) != size:
        got = f"{len(content)}" if len(content) < size else "more"
        raise DataError(f"expected {size} bytes after the header, got {got}", path=path, source=SOURCE)
    return torch.from_numpy(np.frombuffer(bytearray(content), dtype=np.uint8).reshape(shape))


def _header(file: BinaryIO, path: Path, dims: int) -> tuple[int, ...]:
    head = file.read(4 + 4 * dims)
    if len(head) < 4 + 4 * dims or head[:4] != bytes((0, 0, 8, dims)):
        problem = f"expected an IDX header for bytes in {dims} dimensions, got {head[:4].hex(' ') or 'nothing'}"
        raise DataError(problem, path=path, source=SOURCE)
    shape: tuple[int, ...] = struct.unpack(f">{dims}I", head[4:])
    if 0 in shape or math.prod(shape) > _LARGEST:
        raise DataError(f"the header claims {' × '.join(map(str, shape))} bytes", path=path, source=SOURCE)
    return shape
