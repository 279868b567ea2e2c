"""Gradients of decompositions in one call of the kernel.

They cannot be differentiated again, and are for eager mode only: compilers and transforms use the same formulas in
torch, into which they can see.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...native.functions import in_memory
from ...native.thresholds import table
from ..decompose import choice

Gaps = Callable[[Tensor], Tensor | float | None]
"""Given the values, returns the gap matrix, or SVD-Padé's floor, or None if neither applies."""


def eigh_gradient(
    eigenpairs: tuple[Tensor, Tensor],
    cotangents: tuple[Tensor | None, Tensor | None],
    gaps: Gaps,
    filters: bool,
    saturates: bool,
) -> Tensor | None:
    """Return the gradient (*, d, d) with respect to a symmetric matrix, or None if the kernel does not compute it.

    Args:
        eigenpairs: eigenvalues w (*, d) and eigenvectors V (*, d, d).
        cotangents: the gradients with respect to them; one may be None for zero.
        gaps: of w, (*, d, d).
        filters: drop couplings at rounding level between tied vectors.
        saturates: clamp products with the gap matrix that would overflow.
    """
    w, V = eigenpairs
    plan = choice.derivatives(V, "eigenpairs")
    if plan is None:
        return None
    K = 0.0 if cotangents[1] is None else _fitting(gaps(w), V)
    if K is None or not _of_type(V.dtype, *eigenpairs, *cotangents):
        return None
    given = [None if x is None else in_memory(x) for x in (w, V, *cotangents)]
    gaps_in_memory = in_memory(K) if isinstance(K, Tensor) else K
    return plan.eigenpairs(given[:2], given[2:], gaps_in_memory, filters, saturates)  # type: ignore[arg-type]


def svd_gradient(
    factors: tuple[Tensor, Tensor, Tensor],
    cotangents: tuple[Tensor | None, Tensor | None, Tensor | None],
    gaps: Gaps,
    filters: bool,
    saturates: bool,
) -> Tensor | None:
    """Return the gradient (*, m, n) with respect to a matrix, or None if the kernel does not compute it.

    All tensors must be :func:`spectralgrad.dispatch.function.eager`.

    Args:
        factors: U (*, m, k), S (*, k) and Vh (*, k, n).
        cotangents: the gradients with respect to them; None for zero.
        gaps: of S, (*, k, k).
        filters, saturates: as in :func:`eigh_gradient`.
    """
    U, S, Vh = factors
    plan = choice.singular_derivatives(U, Vh, "factors")
    if plan is None or not _of_type(U.dtype, *factors, *cotangents):
        return None
    K = gaps(S)
    if isinstance(K, Tensor):
        K = _fitting(K, S.unsqueeze(-1).expand(*S.shape, S.shape[-1]))
    if K is None:
        return None
    given = [None if x is None else in_memory(x) for x in (*factors, *cotangents)]
    gaps_in_memory = in_memory(K) if isinstance(K, Tensor) else K
    return plan.factors(given[:3], given[3:], gaps_in_memory, filters, saturates)  # type: ignore[arg-type]


def polar_gradient(Q: Tensor, h: Tensor, Vh: Tensor, G: Tensor) -> Tensor | None:
    """Return the gradient (*, m, n) with respect to M = Q V diag(h) Vh, m ≥ n, from Q's gradient, or None.

    The last of h may be negative.
    """
    plan = None if max(Q.shape[-2:]) > table().polar else choice.singular_derivatives(Q, Vh, "polar")
    if plan is None or not _of_type(Q.dtype, h, Vh, G):
        return None
    return plan.polar(*map(in_memory, (G, Q, h, Vh)))


def _fitting(K: Tensor | float | None, like: Tensor) -> Tensor | float | None:
    """Return the gap matrix in the shape that the kernel reads, or None if it has another type.

    A rule may return one matrix for the whole batch.
    """
    if not isinstance(K, Tensor):
        return K
    return K.expand(like.shape) if _of_type(like.dtype, K) and K.is_cpu else None


def _of_type(dtype: torch.dtype, *tensors: Tensor | None) -> bool:
    """True if all are of one type: the kernel reads memory, and hooks on saved tensors may change it."""
    return all(x is None or x.dtype == dtype for x in tensors)
