"""Chooses the solver for a batch: the native kernel, a pool of LAPACK calls, or a plain call of torch.linalg.

:class:`Table` alone determines the choice. Its defaults were measured by :func:`spectralgrad.solvers.tune` on two AVX2
cores; the function measures them again on your machine and stores the result in the user's cache folder.
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
from torch import Tensor

from ..native import Kernel, kernel
from . import lapack, lapack_pool
from .lapack import Factors

SIZES = (2, 3, 4, 8, 16, 32, 64, 128, 256, 384, 512)
_MANY_CALLS_UP_TO = 64  # size up to which the overhead of torch's operations exceeds the time of their products
BATCHES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Table:
    """Thresholds between the solvers.

    Attributes:
        float32: for each of :data:`SIZES`, the smallest batch for which the kernel is used, or None if it never is; a
            size in between uses the entry of the next larger one.
        float64: the same for float64.
        pool: smallest size for which the pool of LAPACK calls is used where the kernel is not.
        fused: largest size for which roots and their derivatives are computed inside the kernel.
        svd32: for each of :data:`SIZES`, the smallest batch for which the kernel computes a singular value
            decomposition; the size of an m×n matrix is the root of mn, rounded down.
        svd64: the same for float64.
    """

    float32: tuple[int | None, ...] = (1, 1, 1, 2, 2, 1, 2, 4, 2, 2, 2)
    float64: tuple[int | None, ...] = (2, 1, 1, 2, 2, 1, 1, 1, 1, 2, 2)
    pool: int = 96
    fused: int = 512
    svd32: tuple[int | None, ...] = (1, 1, 1, 1, 1, 2, 2, 4, None, None, None)
    svd64: tuple[int | None, ...] = (1, 1, 1, 1, 1, 2, 2, 4, None, None, None)

    def smallest_batch(self, d: int, dtype: torch.dtype) -> int | None:
        """Return the smallest batch for which the kernel is used for matrices of size d; None if it never is."""
        return _entry(self.float32 if dtype == torch.float32 else self.float64, d)

    def smallest_svd_batch(self, m: int, n: int, dtype: torch.dtype) -> int | None:
        """The same for singular value decompositions of m×n matrices."""
        return _entry(self.svd32 if dtype == torch.float32 else self.svd64, math.isqrt(m * n))


def _entry(column: tuple[int | None, ...], d: int) -> int | None:
    at = bisect_left(SIZES, d)
    return column[at] if at < len(SIZES) else None


def eigh_by_kernel(A: Tensor) -> tuple[Factors, int] | None:
    """Return eigenvalues and eigenvectors, and the number of failed matrices, from the kernel; None if it is not used.

    The kernel checks its input for NaN and Inf, so matrices that it does not count as failed need no further check.
    """
    native = kernel_for_eigh(A)
    if native is None:
        return None
    *factors, failed = native.eigh(A)
    return tuple(factors), failed


def svd_by_kernel(M: Tensor) -> tuple[Factors, int] | None:
    """The same for U, S and Vh."""
    native = kernel_for_svd(M)
    if native is None:
        return None
    *factors, failed = native.svd(M)
    return tuple(factors), failed


def kernel_for_eigh(A: Tensor) -> Kernel | None:
    """Return the kernel if the table selects it for this batch, otherwise None."""
    native = kernel()
    if native is None or not native.takes(A):
        return None
    return native if _enough(A, table().smallest_batch(A.shape[-1], A.dtype)) else None


def kernel_for_svd(M: Tensor) -> Kernel | None:
    """The same for singular value decompositions."""
    native = kernel()
    if native is None or not native.takes(M):
        return None
    return native if _enough(M, table().smallest_svd_batch(M.shape[-2], M.shape[-1], M.dtype)) else None


def _enough(A: Tensor, least: int | None) -> bool:
    if least is None:
        return False
    count = A.numel()
    return count > 0 and count >= least * A.shape[-2] * A.shape[-1]  # slices of a shape are slow


def eigh(A: Tensor) -> Factors:
    """Return eigenvalues and eigenvectors from the solver that the table selects; NaN where the kernel fails."""
    by_kernel = eigh_by_kernel(A)
    return eigh_by_lapack(A) if by_kernel is None else by_kernel[0]


def eigh_by_lapack(A: Tensor) -> Factors:
    """The same without the kernel: by the pool of LAPACK calls where the table selects it, else by torch.linalg."""
    several = A.shape[:-2].numel() > 1 and torch.get_num_threads() > 1
    if A.device.type == "cpu" and several and A.shape[-1] >= table().pool:
        return lapack_pool.eigh(A)
    return lapack.eigh(A)


def kernel_for_functions(A: Tensor) -> Kernel | None:
    """Return the kernel if it should compute roots for these matrices, otherwise None."""
    return kernel_for_eigh(A) if A.shape[-1] <= table().fused else None


def kernel_for_derivatives(V: Tensor) -> Kernel | None:
    """Return the kernel if it should compute derivatives from the eigenvectors, otherwise None.

    One call replaces up to thirty of torch, so it is used for small matrices even if another solver decomposed them.
    """
    if V.shape[-1] > _MANY_CALLS_UP_TO:
        return kernel_for_functions(V)
    native = kernel()
    return native if native is not None and native.takes(V) and V.numel() else None


@cache
def table() -> Table:
    """Return the user's own table if there is one for this instruction set, otherwise the default."""
    native = kernel()
    if native is None:
        return Table()
    try:
        stored = json.loads(file().read_text(encoding="utf-8"))[native.isa]
        columns = {name: tuple(stored[name]) for name in ("float32", "float64", "svd32", "svd64")}
        if any(len(column) != len(SIZES) for column in columns.values()):
            return Table()
        return Table(pool=int(stored["pool"]), fused=int(stored["fused"]), **columns)
    except (OSError, ValueError, KeyError, TypeError):
        return Table()


def file() -> Path:
    """Return the path of the user's own table."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spectralgrad" / "solvers.json"
