"""Chooses the solver for a batch: the native kernel in one of two ways, a pool of LAPACK calls, or torch.linalg.

Shape, type and batch-invariant mode determine the choice, by the table of native/thresholds.py. On an accelerator it is
the Triton kernels for small matrices, whose calls have the same methods, or torch.linalg.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor

from ...dispatch import function
from ...native import kernel
from ...native.calls import UNCHECKED, Singular, Symmetric
from ...native.derivative_calls import Derivatives, SingularDerivatives
from ...native.functions import in_memory
from ...native.thresholds import NAMES, table
from ...precision import asymmetry_tolerance, negative_tolerance, rank_tolerance
from ..batch_invariance import active as batch_invariant
from ..batch_invariance import anywhere
from ..devices import plans
from . import lapack, lapack_pool
from .lapack import Factors

_JACOBI, _LONG = 5, 512  # Jacobi rotations up to 5 columns; their error grows with the rows, so not beyond 512
_REAL = (torch.float32, torch.float64)


def symmetric(A: Tensor, entry: str = "eigh") -> Symmetric | None:
    """Return the calls that decompose Hermitian matrices in a kernel, or None if another solver does.

    Args:
        A: matrices (*, d, d).
        entry: what is wanted. Functions of matrices, such as "root", exist for real matrices up to a size.
    """
    if not A.is_cpu:
        return cast("Symmetric | None", plans.symmetric(A, entry))
    if kernel() is None:
        return None
    return _symmetric(A.shape, A.dtype, bool(anywhere) and batch_invariant(), entry != "eigh")


def prepared(A: object) -> bool:
    """True if ``A`` is a tensor of real symmetric matrices that carries a gradient and that the kernel decomposes."""
    return function.recorded(A) and symmetric(A) is not None and not A.is_complex()  # type: ignore[arg-type, attr-defined]


def prepared_svd(M: object) -> bool:
    """True if ``M`` is a tensor of real matrices that carries a gradient and whose SVD the kernel computes."""
    return function.recorded(M) and singular(M) is not None and not M.is_complex()  # type: ignore[arg-type, attr-defined]


@lru_cache(maxsize=1024)
def _symmetric(shape: torch.Size, dtype: torch.dtype, invariant: bool, roots: bool) -> Symmetric | None:
    native, fits = kernel(), dtype in NAMES and len(shape) >= 2 and shape[-1] == shape[-2]
    lanes = _in_lanes(shape, dtype, invariant) if fits else None
    if native is None or lanes is None or (roots and (dtype.is_complex or shape[-1] > table().fused)):
        return None
    return Symmetric.of(native, shape, dtype, lanes)


def singular(M: Tensor, entry: str = "svd") -> Singular | None:
    """Return the calls for matrices (*, m, n) in a kernel, or None if another solver is used for what is wanted."""
    if not M.is_cpu:
        return cast("Singular | None", plans.singular(M, entry))
    if kernel() is None:
        return None
    return _singular(M.shape, M.dtype, bool(anywhere) and batch_invariant())


@lru_cache(maxsize=1024)
def _singular(shape: torch.Size, dtype: torch.dtype, invariant: bool) -> Singular | None:
    native, fits = kernel(), dtype in NAMES and len(shape) >= 2
    lanes = _svd_in_lanes(shape, dtype, invariant) if fits else None
    return None if native is None or lanes is None else Singular.of(native, shape, dtype, lanes)


def singular_part(part: Tensor, whole: Tensor) -> Singular | None:
    """The calls for part of a batch by the algorithm that decomposes the whole one."""
    native, lanes = kernel() if part.is_cpu else None, svd_in_lanes(whole.shape, whole.dtype)
    return None if native is None or lanes is None else Singular.of(native, part.shape, part.dtype, lanes)


def derivatives(V: Tensor, entry: str) -> Derivatives | None:
    """Return the calls for derivatives from the eigenvectors, or None if products in torch are faster.

    One call replaces up to thirty of torch, so it is used even if another solver decomposed the matrices.
    """
    if not V.is_cpu:
        return cast("Derivatives | None", plans.derivatives(V, entry))
    if kernel() is None:
        return None
    return _derivatives(V.shape, V.dtype)


@lru_cache(maxsize=1024)
def _derivatives(shape: torch.Size, dtype: torch.dtype) -> Derivatives | None:
    native = kernel()
    if native is None or dtype not in _REAL or not shape.numel() or shape[-1] > table().fused:
        return None
    return Derivatives.of(native, shape, dtype)


def singular_derivatives(U: Tensor, Vh: Tensor, entry: str) -> SingularDerivatives | None:
    """Return the calls for gradients of an SVD and functions of singular values in a kernel, or None."""
    if not U.is_cpu:
        return cast("SingularDerivatives | None", plans.singular_derivatives(U, entry))
    return None if kernel() is None else _singular_derivatives(U.shape, Vh.shape, U.dtype)


@lru_cache(maxsize=1024)
def _singular_derivatives(left: torch.Size, right: torch.Size, dtype: torch.dtype) -> SingularDerivatives | None:
    native = kernel()
    fits = left.numel() * right.numel() > 0 and math.isqrt(left[-2] * right[-1]) <= table().svd_gradient
    return SingularDerivatives.of(native, left, right, dtype) if native and fits and dtype in _REAL else None


@lru_cache
def tolerances(d: int, dtype: torch.dtype, rounded_to: torch.dtype | None) -> tuple[float, float, float]:
    """Return the relative sizes up to which the kernel takes positive and negative eigenvalues for zero, and asymmetry.

    Matrices with larger negative eigenvalues are left to :func:`spectralgrad.solvers.kernel.roots.repair`: those that
    rounding to a half type explains say how large the rounding errors are.
    """
    zero = rank_tolerance(d, dtype)
    negative = negative_tolerance(d, dtype) if rounded_to in (None, dtype) else zero
    return zero, negative, asymmetry_limit(rounded_to)


def asymmetry_limit(dtype: torch.dtype | None) -> float:
    """Return the limit on the asymmetry as the kernel expects it; None stands for no limit."""
    return UNCHECKED if dtype is None else asymmetry_tolerance(dtype)


def in_lanes(shape: torch.Size, dtype: torch.dtype) -> bool | None:
    """True if the kernel decomposes one matrix per SIMD lane, False if one at a time, None if it is not used."""
    return _in_lanes(shape, dtype, batch_invariant())


@lru_cache(maxsize=1024)
def _in_lanes(shape: torch.Size, dtype: torch.dtype, invariant: bool) -> bool | None:
    if not shape.numel():
        return None
    least = table().smallest_batch(shape[-1], dtype)
    if invariant:
        least = 1 if shape[-1] <= table().invariant_lanes else None
    if least is not None and shape[:-2].numel() >= least:
        return True
    return False if shape[-1] <= table().largest_single(dtype) else None


def svd_in_lanes(shape: torch.Size, dtype: torch.dtype) -> bool | None:
    """Return whether the kernel computes SVDs in lanes (True), one at a time (False), or not at all (None)."""
    return _svd_in_lanes(shape, dtype, batch_invariant())


@lru_cache(maxsize=1024)
def _svd_in_lanes(shape: torch.Size, dtype: torch.dtype, invariant: bool) -> bool | None:
    m, n = shape[-2:]
    if not shape.numel() or (min(m, n) <= _JACOBI and max(m, n) > _LONG):
        return None
    least = table().smallest_svd_batch(m, n, dtype)
    if invariant:
        least = 1 if math.isqrt(m * n) <= table().invariant_lanes else None
    if least is not None and shape[:-2].numel() >= least:
        return True
    return False if max(m, n) <= table().largest_single_svd(dtype) else None


_CACHED = _symmetric, _singular, _derivatives, _singular_derivatives, _in_lanes, _svd_in_lanes


def forget() -> None:
    """Read the table again at the next call."""
    for remembered in (table, *_CACHED):
        remembered.cache_clear()


def eigh(A: Tensor) -> Factors:
    """Return eigenvalues and eigenvectors from the solver that the table selects; NaN where the kernel fails."""
    plan = symmetric(A)
    return eigh_by_lapack(A) if plan is None else plan.eigh(in_memory(A))[0]


def eigh_by_lapack(A: Tensor) -> Factors:
    """Decompose without a kernel: by the pool of LAPACK calls where the table selects it, else by torch.linalg."""
    if batch_invariant():
        return lapack.separately(lapack.eigh, A)
    if not A.is_cpu:
        return lapack.eigh_verified(A) if A.dtype == torch.complex64 else lapack.eigh(A)
    several = A.shape[:-2].numel() > 1 and torch.get_num_threads() > 1
    if several and A.shape[-1] >= table().pool:
        return lapack_pool.eigh(A)
    return lapack.eigh(A)


def eigvalsh_by_lapack(A: Tensor) -> tuple[Tensor, bool]:
    """Return the eigenvalues, and whether one of them is not finite."""
    return lapack.eigvalsh(A) if not batch_invariant() else lapack.eigvalsh_separately(A)


def svd_by_lapack(M: Tensor) -> Factors:
    """Return U, S and Vh."""
    if batch_invariant():
        return lapack.separately(lapack.svd, M)
    return lapack.svd(M) if M.is_cpu else lapack.svd_of_smaller(M)
