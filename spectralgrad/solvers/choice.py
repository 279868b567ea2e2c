"""Which solver decomposes a batch: the native kernel, a pool of LAPACK calls, or torch.linalg as it is.

The table below is the one place where that is decided. Its columns are what ``spectralgrad bench --tune`` measured
on two AVX2 cores; the command measures them again on your machine and keeps the result in the user's cache folder.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ..native import Kernel, kernel
from . import lapack, pool

SIZES = (2, 3, 4, 8, 16, 32, 64, 128, 256, 384, 512)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Table:
    """For each size the smallest batch from which the kernel wins; None where it never does.

    Attributes:
        float32: one entry for each of :data:`SIZES`; a size in between takes the next larger one.
        float64: likewise.
        pool: sizes from here on use the pool of LAPACK calls where the kernel is not used.
        fused: sizes up to here compute roots and their derivatives inside the kernel.
    """

    float32: tuple[int | None, ...] = (1, 1, 1, 2, 2, 1, 2, 4, 2, 2, 2)
    float64: tuple[int | None, ...] = (2, 1, 1, 2, 2, 1, 1, 1, 1, 2, 2)
    pool: int = 96
    fused: int = 512

    def smallest_batch(self, d: int, dtype: torch.dtype) -> int | None:
        """The batch from which the kernel is used for matrices of size d."""
        column = self.float32 if dtype == torch.float32 else self.float64
        return next((batch for size, batch in zip(SIZES, column, strict=True) if d <= size), None)


def eigh_by_kernel(A: Tensor) -> tuple[Tensor, Tensor, int] | None:
    """Eigenvalues, eigenvectors and the number of matrices without (they are NaN) by the kernel, if the table names it.

    It looks at its input anyway, so what it does not count as failed needs no other check.
    """
    native = _named(A)
    return None if native is None else native.eigh(A)


def _named(A: Tensor) -> Kernel | None:
    """The kernel, if the table names it for this batch."""
    native, d = kernel(), A.shape[-1]
    if native is None or not native.takes(A) or A.numel() == 0:
        return None
    smallest = table().smallest_batch(d, A.dtype)
    return native if smallest is not None and A.shape[:-2].numel() >= smallest else None


def eigh(A: Tensor) -> tuple[Tensor, ...]:
    """Eigenvalues and eigenvectors by the solver that the table names; the kernel leaves NaN where it fails."""
    by_kernel = eigh_by_kernel(A)
    return eigh_by_lapack(A) if by_kernel is None else by_kernel[:2]


def eigh_by_lapack(A: Tensor) -> tuple[Tensor, ...]:
    """The same without the kernel: the pool of LAPACK calls where the table names it, otherwise torch.linalg."""
    several = A.shape[:-2].numel() > 1 and torch.get_num_threads() > 1
    if A.device.type == "cpu" and several and A.shape[-1] >= table().pool:
        return pool.eigh(A)
    return lapack.eigh(A)


def kernel_for_functions(A: Tensor) -> Kernel | None:
    """The kernel, if roots and derivatives of functions of these matrices are to be computed inside it."""
    return _named(A) if A.shape[-1] <= table().fused else None


@cache
def table() -> Table:
    """The table in force: the user's own if there is one for this instruction set, else the measured default."""
    native = kernel()
    if native is None:
        return Table()
    try:
        stored = json.loads(file().read_text(encoding="utf-8"))[native.isa]
        columns = {name: tuple(stored[name]) for name in ("float32", "float64")}
        if any(len(column) != len(SIZES) for column in columns.values()):
            return Table()
        return Table(columns["float32"], columns["float64"], int(stored["pool"]), int(stored["fused"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Table()


def file() -> Path:
    """Where the user's own table is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spectralgrad" / "solvers.json"
