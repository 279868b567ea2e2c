"""The thresholds between two ways to the same result, all of them in one table.

An entry decides about time, not about accuracy: whatever it is, results are right. Code reads it as ``table().name``.
The defaults are a compromise between AVX-512 and AVX2, measured on one and two cores;
:func:`spectralgrad.solvers.tune` measures them again on your machine and stores the result in the user's cache folder.

A new entry is a field here, and a line in ``solvers/decompose/measurements.py`` that says how it is measured.
``tests/test_tuning.py`` notices if it is missing, and ``tests/test_thresholds.py`` needs a call that the entry decides.
"""

from __future__ import annotations

import json
import math
import os
from bisect import bisect_left
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ..io.files import write_json
from .library import kernel

SIZES = (2, 3, 4, 8, 16, 32, 64, 128, 256, 384, 512)
BATCHES = (1, 2, 3, 4, 6, 8, 16, 32, 64)
NAMES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
}
_ORDER = {dtype: index for index, dtype in enumerate(NAMES)}


def _fixed(default: int, reason: str) -> Any:
    """A threshold that is the same on every machine, for a reason; it is neither measured nor stored."""
    return field(default=default, repr=False, metadata={"fixed": reason})


@dataclass(frozen=True)
class Table:
    """The thresholds. Sizes are numbers of rows and columns, unless it is said otherwise.

    Attributes:
        float32: for each of :data:`SIZES`, the smallest batch for which the kernel decomposes one matrix per SIMD lane,
            or None if it never does; a size in between uses the entry of the next larger one.
        float64, complex64, complex128: these batches for matrices of other types.
        single: for float32, float64, complex64 and complex128, the largest size for which the kernel decomposes smaller
            batches one matrix at a time.
        svd_float32, svd_float64, svd_complex64, svd_complex128: for singular value decompositions, what ``float32`` is
            for symmetric matrices; the size of an m×n matrix is the root of mn, rounded down.
        svd_single: the same as ``single``, for the larger of m and n.
        pool: smallest size for which the pool of LAPACK calls is used where the kernel is not.
        fused: largest size for which the kernel computes roots and functions of matrices, and derivatives from
            eigenvectors.
        svd_gradient: largest size, the root of mn, for which the kernel computes gradients of singular value
            decompositions and functions of singular values.
        polar: largest number of rows or columns for which the kernel computes the products of a polar factor and of its
            gradient.
        tall: smallest ratio of rows to columns for which a polar factor in single precision comes from the Gram matrix,
            where the kernel could compute singular values.
        gram_blocks: smallest number of columns for which the half of that Gram matrix is computed in blocks.
        few: largest count of numbers that are looked at one by one in Python, instead of by operations on tensors.
        channels_from, channels_up_to: smallest and largest number of channels of a group for which the kernel makes the
            passes over features.
        positions: smallest number of positions of a sample for which it does; most of a packed panel is padding below.
        invariant_lanes: in batch-invariant mode, the largest size that the kernel decomposes in lanes.
        piece: entries of features in a piece, where torch makes the passes over them; 2 MB in float32.
    """

    float32: tuple[int | None, ...] = (1, 1, 1, 2, 3, 6, 16, 32, 8, 8, 4)
    float64: tuple[int | None, ...] = (1, 1, 1, 2, 3, 4, 16, 16, 2, 4, None)
    complex64: tuple[int | None, ...] = (1, 1, 1, 2, 4, 8, 16, 16, None, None, None)
    complex128: tuple[int | None, ...] = (1, 1, 1, 2, 4, 8, 16, 8, None, None, None)
    single: tuple[int, ...] = (1024, 512, 512, 384)
    svd_float32: tuple[int | None, ...] = (1, 1, 2, 2, 2, 3, 6, 16, 8, None, None)
    svd_float64: tuple[int | None, ...] = (1, 1, 1, 2, 3, 3, 6, 6, None, None, None)
    svd_complex64: tuple[int | None, ...] = (1, 1, 2, 2, 4, 6, 8, None, None, None, None)
    svd_complex128: tuple[int | None, ...] = (1, 1, 2, 2, 3, 4, 6, None, None, None, None)
    svd_single: tuple[int, ...] = (768, 512, 512, 384)
    pool: int = 96
    fused: int = 512
    svd_gradient: int = 256
    polar: int = 32
    tall: int = 3
    gram_blocks: int = 128
    few: int = 64
    channels_from: int = 4
    channels_up_to: int = 384
    positions: int = 16
    invariant_lanes: int = _fixed(48, "the mode is for reproducibility; at this size either way costs at most twice")
    piece: int = _fixed(2**19, "reproducibility: it decides the order in which sums are taken")

    def smallest_batch(self, d: int, dtype: torch.dtype) -> int | None:
        """Return the smallest batch of matrices of size d that the kernel decomposes in lanes, or None."""
        return _entry(getattr(self, NAMES[dtype]), d)

    def largest_single(self, dtype: torch.dtype) -> int:
        """Return the largest size for which smaller batches are decomposed one matrix at a time."""
        return self.single[_ORDER[dtype]]

    def smallest_svd_batch(self, m: int, n: int, dtype: torch.dtype) -> int | None:
        """Return the smallest batch of m×n matrices whose SVD the kernel computes in lanes, or None."""
        return _entry(getattr(self, f"svd_{NAMES[dtype]}"), math.isqrt(m * n))

    def largest_single_svd(self, dtype: torch.dtype) -> int:
        """Return the largest size, the larger of m and n, up to which smaller batches are decomposed one at a time."""
        return self.svd_single[_ORDER[dtype]]


def _entry(column: tuple[int | None, ...], d: int) -> int | None:
    at = bisect_left(SIZES, d)
    return column[at] if at < len(SIZES) else None


def tuned() -> dict[str, Any]:
    """Return the defaults of the entries that are measured, by name."""
    return {entry.name: entry.default for entry in fields(Table) if "fixed" not in entry.metadata}


@cache
def table() -> Table:
    """Return the table in use; :func:`spectralgrad.solvers.decompose.choice.forget` lets it be read again."""
    return stored()


def stored() -> Table:
    """Return the user's own table if there is one for this instruction set, otherwise the default.

    Entries that the file does not have, because an earlier version wrote it, have their defaults.
    """
    native = kernel()
    if native is None:
        return Table()
    try:
        found = json.loads(file().read_text(encoding="utf-8"))[native.isa]
        return Table(**{name: _like(default, found[name]) for name, default in tuned().items() if name in found})
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return Table()


def _like(default: Any, value: Any) -> Any:
    """Return a stored value in the form of the default; an error if it does not have it."""
    if not isinstance(default, tuple):
        return int(value)
    if len(value) != len(default):
        raise ValueError(f"expected {len(default)} numbers, got {len(value)}")
    column = len(default) == len(SIZES)
    return tuple(None if x is None and column else int(x) for x in value)


def store(isa: str, result: Table) -> None:
    """Write the user's own table for an instruction set; those for others remain."""
    path = file()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    write_json(path, {**known, isa: {name: getattr(result, name) for name in tuned()}})


def file() -> Path:
    """Return the path of the user's own table."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spectralgrad" / "solvers.json"
