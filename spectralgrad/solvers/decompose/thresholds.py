"""The thresholds between the solvers.

The defaults are a compromise between AVX-512 and AVX2, measured on one and two cores;
:func:`spectralgrad.solvers.tune` measures them again on your machine and stores the result in the user's cache folder.
"""

from __future__ import annotations

import json
import math
import os
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from ...native import kernel

SIZES = (2, 3, 4, 8, 16, 32, 64, 128, 256, 384, 512)
BATCHES = (1, 2, 3, 4, 6, 8, 16, 32, 64)
NAMES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
}
_ORDER = {dtype: index for index, dtype in enumerate(NAMES)}


@dataclass(frozen=True)
class Table:
    """Thresholds between the solvers.

    Attributes:
        float32: for each of :data:`SIZES`, the smallest batch for which the kernel decomposes one matrix per SIMD lane,
            or None if it never does; a size in between uses the entry of the next larger one.
        float64, complex64, complex128: the same for these types.
        single: for float32, float64, complex64 and complex128, the largest size for which the kernel decomposes smaller
            batches one matrix at a time.
        svd_float32, svd_float64, svd_complex64, svd_complex128: for singular value decompositions, what ``float32`` is
            for symmetric matrices; the size of an m×n matrix is the root of mn, rounded down.
        svd_single: the same as ``single``, for the larger of m and n.
        pool: smallest size for which the pool of LAPACK calls is used where the kernel is not.
        fused: largest size for which roots and their derivatives are computed inside the kernel.
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


@cache
def table() -> Table:
    """Return the user's own table if there is one for this instruction set, otherwise the default."""
    native = kernel()
    if native is None:
        return Table()
    try:
        stored = json.loads(file().read_text(encoding="utf-8"))[native.isa]
        columns = {name: tuple(stored[name]) for name in (*NAMES.values(), *(f"svd_{name}" for name in NAMES.values()))}
        sizes = {name: tuple(map(int, stored[name])) for name in ("single", "svd_single")}
        if any(len(column) != len(SIZES) for column in columns.values()) or any(len(x) != 4 for x in sizes.values()):
            return Table()
        return Table(pool=int(stored["pool"]), fused=int(stored["fused"]), **sizes, **columns)
    except (OSError, ValueError, KeyError, TypeError):
        return Table()


def file() -> Path:
    """Return the path of the user's own table."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spectralgrad" / "solvers.json"
