"""The images included in the package: 4,000 + 1,000 of Fashion-MNIST, selected by ``tools/embed_fashion.py``."""

from __future__ import annotations

from pathlib import Path

from .dataset import Dataset
from .idx import read_fashion_mnist

FOLDER = Path(__file__).parent / "fashion"


def read_embedded() -> Dataset:
    """Read the embedded images.

    Example:
        >>> data = read_embedded()
        >>> tuple(data.train.images.shape), data.test.labels.bincount().tolist()
        ((4000, 1, 28, 28), [100, 100, 100, 100, 100, 100, 100, 100, 100, 100])

    Reference: Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017; MIT licence, in the same folder.
    """
    return read_fashion_mnist(FOLDER, "fashion")
