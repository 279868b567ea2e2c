"""Datasets of the papers, embedded images, and batches that depend only on seed and epoch."""

from .augmentation import AUGMENTATIONS, Augmentation
from .batches import Batches
from .dataset import Dataset, Split
from .errors import DataError
from .image_files import ImageFiles
from .registry import DATASETS, Source, known, load, load_for, register
from .user_datasets import as_dataset, fingerprint

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
    "as_dataset",
    "fingerprint",
    "known",
    "load",
    "load_for",
    "register",
]
