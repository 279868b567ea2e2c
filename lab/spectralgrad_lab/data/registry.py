"""The datasets by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from spectralgrad.io import plugins

from ..import_by_name import exit_is_an_error
from .birds import SOURCE as BIRDS
from .birds import read_birds
from .cifar import CIFAR10, CIFAR100, read_cifar
from .dataset import Dataset
from .embedded import read_embedded
from .errors import DataError
from .folders import LAYOUT, read_folders
from .idx import SOURCE as FASHION
from .idx import read_fashion_mnist
from .tiny import SOURCE as TINY
from .tiny import read_tiny_imagenet
from .user_datasets import as_dataset, own_dataset

_DOGS = "Stanford Dogs is at http://vision.stanford.edu/aditya86/ImageNetDogs/; sort it by its lists."
_CARS = "Stanford Cars (196 classes) has its split in devkit files; sort it by them."
_IMAGENET = "ImageNet (ILSVRC 2012) is at https://image-net.org; sort the validation images into class folders."


@dataclass(frozen=True)
class Source:
    """How to load a dataset.

    Args:
        summary: a description of one line.
        read: reads the dataset from a folder; see :func:`as_dataset` for what it may return.
        advice: where to get the dataset.
        folder: True if a folder is needed.

    Example:
        >>> print(DATASETS["fashion"])
        4,000 + 1,000 grey images of clothes, 28 × 28, 10 classes, in the package
    """

    summary: str
    read: Callable[[Path], Any]
    advice: str = ""
    folder: bool = True

    def __str__(self) -> str:
        return self.summary


def _fine_grained(name: str, advice: str) -> Callable[[Path], Dataset]:
    return partial(read_folders, name=name, source=advice, resize=448, crop=448, augmentation="fine-grained")


def _large(name: str, advice: str) -> Callable[[Path], Dataset]:
    return partial(read_folders, name=name, source=advice, resize=256, crop=224, augmentation="imagenet")


DATASETS: dict[str, Source] = {
    "fashion": Source(
        "4,000 + 1,000 grey images of clothes, 28 × 28, 10 classes, in the package",
        lambda _: read_embedded(),
        folder=False,
    ),
    "fashion-mnist": Source(
        "Fashion-MNIST: 60,000 + 10,000 grey images, 28 × 28, 10 classes", read_fashion_mnist, FASHION
    ),
    "cifar10": Source(
        "CIFAR-10: 50,000 + 10,000 images, 32 × 32, 10 classes", partial(read_cifar, CIFAR10), CIFAR10.source
    ),
    "cifar100": Source(
        "CIFAR-100: 50,000 + 10,000 images, 32 × 32, 100 classes", partial(read_cifar, CIFAR100), CIFAR100.source
    ),
    "tiny-imagenet": Source("Tiny ImageNet: 100,000 + 10,000 images, 64 × 64, 200 classes", read_tiny_imagenet, TINY),
    "folder": Source("your own images: train/ and val/ or test/, one folder per class", _large("folder", ""), LAYOUT),
    "birds": Source("CUB-200-2011: 5,994 + 5,794 images at 448, 200 classes", read_birds, BIRDS),
    "dogs": Source(
        "Stanford Dogs in class folders: 12,000 + 8,580 images at 448, 120 classes",
        _fine_grained("dogs", _DOGS),
        f"{_DOGS} {LAYOUT}",
    ),
    "cars": Source(
        "Stanford Cars in class folders: 8,144 + 8,041 images at 448, 196 classes",
        _fine_grained("cars", _CARS),
        f"{_CARS} {LAYOUT}",
    ),
    "imagenet": Source(
        "ImageNet in class folders: 1,281,167 + 50,000 images at 224, 1000 classes",
        _large("imagenet", _IMAGENET),
        f"{_IMAGENET} {LAYOUT}",
    ),
}


GROUP = "spectralgrad.data"  # of entry points
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def register(name: str, source: Source | Callable[[Path], Any]) -> None:
    """Register your own dataset under a name, for :func:`load` and ``Config(dataset=...)``.

    Installed packages do not need this call: an entry point in the group ``spectralgrad.data`` that refers to a source
    or a reader is found by its name.

    Args:
        name: letters, digits, dots and hyphens; it must not be in use.
        source: a :class:`Source`, or a function that reads the dataset from a folder; see :func:`as_dataset` for what
            it may return.

    Raises:
        DataError: the name is invalid or in use, or the source is not callable.

    Example:
        >>> images, labels = torch.rand(6, 1, 8, 8), torch.arange(6) % 2
        >>> register("noise", Source("noise", lambda _: ((images, labels), (images, labels)), folder=False))
        >>> load("noise").classes
        ('0', '1')
        >>> del DATASETS["noise"]
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in DATASETS:
        taken = " that is not in use" if name in DATASETS else " of letters, digits, dots and hyphens"
        raise DataError(f"register: expected a name{taken}, got {name!r}")
    if not isinstance(source, Source) and not callable(source):
        raise DataError(f"register: expected a Source or a reader to call, got {type(source).__name__}")
    DATASETS[name] = source if isinstance(source, Source) else Source(_line(source), source)


def _line(read: Callable[..., Any]) -> str:
    return ((getattr(read, "__doc__", None) or "").strip() or "your own").splitlines()[0]


def known(name: str) -> bool:
    """True if :func:`load` accepts the name; nothing is imported.

    Example:
        >>> known("fashion"), known("my.module:images"), known("mnist")
        (True, True, False)
    """
    return name in DATASETS or ":" in name or name in plugins.names(GROUP)


def _source(name: str) -> Source:
    if name not in DATASETS:
        found = plugins.load(GROUP, name)
        try:
            if found is not None:
                register(name, found)
        except DataError as problem:
            plugins.refuse(GROUP, name, str(problem))
    if name not in DATASETS:
        raise DataError(unknown_dataset(name))
    return DATASETS[name]


def unknown_dataset(name: str) -> str:
    """The error message for an unknown name.

    Example:
        >>> unknown_dataset("own@3f2a9c1b").partition("got ")[2]
        "'own@3f2a9c1b'; this dataset was an object: pass it to train again as `data=`"
    """
    passed = "; this dataset was an object: pass it to train again as `data=`" if "@" in name else ""
    return f"expected a dataset of {', '.join(DATASETS)}, or module:callable, got {name!r}{passed}"


class DataConfig(Protocol):
    """The settings of a run that choose its dataset."""

    @property
    def dataset(self) -> str: ...
    @property
    def data(self) -> str | None: ...
    @property
    def train_size(self) -> int | None: ...
    @property
    def test_size(self) -> int | None: ...


def load_for(config: DataConfig) -> Dataset:
    """Load the dataset of a run; see :func:`load`.

    Example:
        >>> from spectralgrad_lab.training.config.run_config import Config
        >>> len(load_for(Config(train_size=50)).train)
        50
    """
    return load(config.dataset, config.data, train_size=config.train_size, test_size=config.test_size)


def load(
    name: str, folder: Path | str | None = None, *, train_size: int | None = None, test_size: int | None = None
) -> Dataset:
    """Load a dataset by its name.

    Args:
        name: one of ``DATASETS``, an entry point of an installed package, or your own as ``"module:callable"``.
        folder: where its files are; ``"fashion"`` needs none, your own receives it if it has a parameter ``folder``.
        train_size: number of training images to use, a balanced subset.
        test_size: the same for test images.

    Raises:
        DataError: the name is unknown, or files are missing or damaged; the message says which and where to get them.

    Example:
        >>> data = load("fashion", train_size=100)
        >>> data.train.labels.bincount().tolist()
        [10, 10, 10, 10, 10, 10, 10, 10, 10, 10]
        >>> data.classes[5]
        'sandal'
    """
    place = None if folder is None else Path(folder).expanduser()
    with exit_is_an_error(f"dataset {name!r}", DataError):
        return _loaded(name, place).smaller(train_size, test_size)


def _loaded(name: str, folder: Path | None) -> Dataset:
    if ":" in name:
        return own_dataset(name, folder)
    source = _source(name)
    if source.folder and folder is None:
        raise DataError(f"{name}: expected the folder of its files (--data DIR), got none", source=source.advice)
    if folder is not None and not source.folder:
        raise DataError(f"{name} is in the package: expected no folder, got {folder}; say --dataset NAME too")
    return as_dataset(source.read(folder or Path()), name)
