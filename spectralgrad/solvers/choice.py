"""Chooses the solver for a batch: the native kernel in one of two ways, a pool of LAPACK calls, or torch.linalg.

The table of thresholds.py alone determines the choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..native import Kernel, kernel
from ..native.functions import UNCHECKED
from ..precision import asymmetry_tolerance, negative_tolerance, rank_tolerance
from . import lapack, lapack_pool
from .batch_invariance import active as batch_invariant
from .lapack import Factors
from .thresholds import table

_MANY_CALLS_UP_TO = 64  # size up to which the overhead of torch's operations exceeds the time of their products
_FEW, _LONG = 5, 512  # up to so many columns, rotations add up whole columns; rounding grows with their length
_INVARIANT_LANES_UP_TO = 48  # in batch-invariant mode: there, either way costs at most a factor of two
GRADIENT_UP_TO = 256  # size up to which the kernel computes the gradient of an SVD; products in torch are faster above


def eigh_by_kernel(A: Tensor, dtype: torch.dtype | None = None) -> tuple[Factors, int] | None:
    """Return eigenvalues and eigenvectors, and the number of failed matrices, from the kernel; None if it is not used.

    The kernel checks its input for NaN and Inf, and with a ``dtype`` for asymmetry beyond rounding, so matrices that it
    does not count as failed need no further check.
    """
    found = _eigensolver(A)
    if found is None:
        return None
    native, lanes = found
    limit = asymmetry_limit(dtype)
    w, V, failed = native.eigh(A, limit) if lanes else native.eigh_single(A, limit)
    return (w, V), failed


@lru_cache
def tolerances(d: int, dtype: torch.dtype, rounded_to: torch.dtype | None) -> tuple[float, float, float]:
    """Return the relative sizes up to which the kernel takes positive and negative eigenvalues for zero, and asymmetry.

    Matrices with larger negative eigenvalues are left to :func:`spectralgrad.solvers.fused.repair`: those that rounding
    to a half type explains say how large the rounding errors are.
    """
    zero = rank_tolerance(d, dtype)
    negative = negative_tolerance(d, dtype) if rounded_to in (None, dtype) else zero
    return zero, negative, asymmetry_limit(rounded_to)


def asymmetry_limit(dtype: torch.dtype | None) -> float:
    """Return the limit on the asymmetry as the kernel expects it; None stands for no limit."""
    return UNCHECKED if dtype is None else asymmetry_tolerance(dtype)


def eigvalsh_by_kernel(A: Tensor) -> tuple[Tensor, int] | None:
    """The same for eigenvalues alone."""
    found = _eigensolver(A)
    if found is None:
        return None
    native, lanes = found
    return native.eigvalsh(A) if lanes else native.eigvalsh_single(A)


def svd_by_kernel(M: Tensor) -> tuple[Factors, int] | None:
    """The same for U, S and Vh."""
    solver = svd_solver(M)
    if solver is None:
        return None
    *factors, failed = solver(M)
    return tuple(factors), failed


def svdvals_by_kernel(M: Tensor) -> tuple[Tensor, int] | None:
    """The same for singular values alone."""
    native = kernel()
    lanes = None if native is None or not native.decomposes(M) else svd_in_lanes(M.shape, M.dtype)
    if native is None or lanes is None:
        return None
    return native.svdvals(M) if lanes else native.svdvals_single(M)


def _eigensolver(A: Tensor) -> tuple[Kernel, bool] | None:
    """Return the kernel and :func:`in_lanes` if the table selects the kernel for this batch, otherwise None."""
    native = kernel()
    if native is None or not native.decomposes(A):
        return None
    lanes = in_lanes(A.shape, A.dtype)
    return None if lanes is None else (native, lanes)


def in_lanes(shape: torch.Size, dtype: torch.dtype) -> bool | None:
    """True if the kernel decomposes one matrix per SIMD lane, False if one at a time, None if it is not used."""
    return _in_lanes(shape, dtype, batch_invariant())


@lru_cache(maxsize=1024)
def _in_lanes(shape: torch.Size, dtype: torch.dtype, invariant: bool) -> bool | None:
    if not shape.numel():
        return None
    least = table().smallest_batch(shape[-1], dtype)
    if invariant:
        least = 1 if shape[-1] <= _INVARIANT_LANES_UP_TO else None
    if least is not None and shape[:-2].numel() >= least:
        return True
    return False if shape[-1] <= table().largest_single(dtype) else None


class Plan(NamedTuple):
    """What the kernel computes for symmetric matrices of one shape and type, as C functions and their arguments."""

    eigh: Any
    root: Any | None  # None if products in torch are faster
    frechet: Any | None
    batch: int
    d: int
    values: tuple[int, ...]  # the shape of the eigenvalues
    dtype: torch.dtype
    tolerances: tuple[float, float, float]  # of roots of matrices that are rounded to this type
    codes: tuple[int, int]  # the kernel's numbers of the root and of its inverse


@lru_cache(maxsize=1024)
def plan(shape: torch.Size, dtype: torch.dtype, invariant: bool = False) -> Plan | None:
    """Return the plan for real matrices, or None if the kernel is not used for them; ``invariant`` to the batch."""
    native = kernel()
    real = dtype in (torch.float32, torch.float64)
    if native is None or not real or len(shape) < 2 or shape[-1] != shape[-2]:
        return None
    lanes, d = _in_lanes(shape, dtype, invariant), shape[-1]
    if lanes is None:
        return None
    eigh, *functions = native.symmetric(lanes, dtype)
    root, frechet = functions if d <= table().fused else (None, None)
    limits, codes = tolerances(d, dtype, dtype), (native.root_code(False), native.root_code(True))
    return Plan(eigh, root, frechet, shape[:-2].numel(), d, tuple(shape[:-1]), dtype, limits, codes)


class SVDPlan(NamedTuple):
    """The same for singular value decompositions: the C function, its sizes, and the shapes of its results."""

    svd: Any
    sizes: tuple[int, int, int]
    U: tuple[int, ...]
    S: tuple[int, ...]
    Vh: tuple[int, ...]


@lru_cache(maxsize=1024)
def svd_plan(shape: torch.Size, dtype: torch.dtype, invariant: bool = False) -> SVDPlan | None:
    """Return the plan for real matrices (*, m, n), or None if the kernel is not used for them."""
    native = kernel()
    if native is None or dtype not in (torch.float32, torch.float64) or len(shape) < 2:
        return None
    lanes = _svd_in_lanes(shape, dtype, invariant)
    if lanes is None:
        return None
    *batch, m, n = shape
    k, count = min(m, n), shape[:-2].numel()
    return SVDPlan(native.singular(lanes, dtype), (count, m, n), (*batch, m, k), (*batch, k), (*batch, k, n))


def forget() -> None:
    """Read the table again at the next call."""
    for remembered in (table, _in_lanes, plan, _svd_in_lanes, svd_plan):
        remembered.cache_clear()


def svd_solver(M: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor, Tensor, int]] | None:
    """Return the kernel's function if the table selects it for the singular value decompositions of this batch."""
    native = kernel()
    if native is None or not native.decomposes(M):
        return None
    lanes = svd_in_lanes(M.shape, M.dtype)
    return None if lanes is None else native.svd if lanes else native.svd_single


def svd_in_lanes(shape: torch.Size, dtype: torch.dtype) -> bool | None:
    """The same as :func:`in_lanes` for singular value decompositions."""
    return _svd_in_lanes(shape, dtype, batch_invariant())


@lru_cache(maxsize=1024)
def _svd_in_lanes(shape: torch.Size, dtype: torch.dtype, invariant: bool) -> bool | None:
    m, n = shape[-2:]
    if not shape.numel() or (min(m, n) <= _FEW and max(m, n) > _LONG):
        return None
    least = table().smallest_svd_batch(m, n, dtype)
    if invariant:
        least = 1 if math.isqrt(m * n) <= _INVARIANT_LANES_UP_TO else None
    if least is not None and shape[:-2].numel() >= least:
        return True
    return False if max(m, n) <= table().largest_single_svd(dtype) else None


def kernel_for_svd_gradient(U: Tensor, Vh: Tensor) -> Kernel | None:
    """Return the kernel if it should compute the gradient of a decomposition, otherwise None."""
    return kernel_for_gradient(U.shape, Vh.shape, U.dtype) if U.is_cpu else None


def kernel_for_gradient(left: torch.Size, right: torch.Size, dtype: torch.dtype) -> Kernel | None:
    """The same for U and Vh of these shapes on a CPU."""
    fits = left.numel() * right.numel() > 0 and math.isqrt(left[-2] * right[-1]) <= GRADIENT_UP_TO
    return kernel() if fits and dtype in (torch.float32, torch.float64) else None


def eigh(A: Tensor) -> Factors:
    """Return eigenvalues and eigenvectors from the solver that the table selects; NaN where the kernel fails."""
    by_kernel = eigh_by_kernel(A)
    return eigh_by_lapack(A) if by_kernel is None else by_kernel[0]


def eigh_by_lapack(A: Tensor) -> Factors:
    """The same without the kernel: by the pool of LAPACK calls where the table selects it, else by torch.linalg."""
    if batch_invariant():
        return lapack.separately(lapack.eigh, A)
    several = A.shape[:-2].numel() > 1 and torch.get_num_threads() > 1
    if A.device.type == "cpu" and several and A.shape[-1] >= table().pool:
        return lapack_pool.eigh(A)
    return lapack.eigh(A)


def eigvalsh_by_lapack(A: Tensor) -> tuple[Tensor, int]:
    """Return the eigenvalues, and the number of matrices with one that is not finite."""
    return lapack.eigvalsh(A) if not batch_invariant() else lapack.eigvalsh_separately(A)


def svd_by_lapack(M: Tensor) -> Factors:
    """Return U, S and Vh."""
    return lapack.separately(lapack.svd, M) if batch_invariant() else lapack.svd(M)


def kernel_for_functions(A: Tensor) -> Kernel | None:
    """Return the kernel if it should compute roots for these matrices, otherwise None."""
    found = _eigensolver(A) if A.shape[-1] <= table().fused and not A.is_complex() else None
    return None if found is None else found[0]


def kernel_for_derivatives(V: Tensor) -> Kernel | None:
    """Return the kernel if it should compute derivatives from the eigenvectors, otherwise None.

    One call replaces up to thirty of torch, so it is used for small matrices even if another solver decomposed them.
    """
    if V.shape[-1] > _MANY_CALLS_UP_TO:
        return kernel_for_functions(V)
    native = kernel()
    return native if native is not None and native.takes(V) and V.numel() else None
