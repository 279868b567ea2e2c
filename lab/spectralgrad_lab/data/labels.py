"""Check labels, and choose balanced subsets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .errors import DataError


def checked_labels(labels: npt.NDArray[np.uint8], classes: int, path: Path, source: str) -> Tensor:
    """The labels as int64; raises DataError if one of them is not below the number of classes."""
    bad = np.flatnonzero(labels >= classes)
    if bad.size:
        more = f" and {bad.size - 1} more" if bad.size > 1 else ""
        problem = f"expected labels from 0 to {classes - 1}, got {labels[bad[0]]} in record {bad[0]}{more}"
        raise DataError(problem, path=path, source=source)
    return torch.from_numpy(labels.astype(np.int64))


def balanced_subset(labels: Tensor, size: int) -> Tensor:
    """Positions of ``size`` samples, taken from the classes in turn and sorted.

    Example:
        >>> balanced_subset(torch.tensor([0, 0, 0, 1, 1, 1]), 4).tolist()
        [0, 1, 3, 4]
    """
    by_class = torch.argsort(labels, stable=True)
    _, counts = torch.unique(labels[by_class], return_counts=True)
    starts = counts.cumsum(0) - counts
    turns = torch.empty_like(labels)
    turns[by_class] = torch.arange(len(labels)) - starts.repeat_interleave(counts)
    return torch.argsort(turns, stable=True)[:size].sort().values
