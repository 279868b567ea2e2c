"""Datasets of the papers, embedded pictures, and batches that depend on seed and epoch only."""

from .augmentation import AUGMENTATIONS, Augmentation
from .batches import Batches
from .dataset import Dataset, Split
from .errors import DataError
from .pictures import ImageFiles
from .registry import DATASETS, Source, load, load_for

__all__ = [
    "AUGMENTATIONS",
    "DATASETS",
    "Augmentation",
    "Batches",
    "DataError",
    "Dataset",
    "ImageFiles",
    "Source",
    "Split",
    "load",
    "load_for",
]
