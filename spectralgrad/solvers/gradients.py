"""Gradients of decompositions in one call of the kernel.

They cannot be differentiated again, and are for eager mode only: compilers and transforms use the same formulas in
torch, into which they can see.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from . import choice

_SMALL = 32  # rows and columns up to which one call of the kernel is faster than several of torch
Gaps = Callable[[Tensor], Tensor | float | None]
"""Given the values, returns the gap matrix, or the floor of that of SVD-Padé, or None if neither applies."""


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
        cotangents: the gradients with respect to them, of which one may be None for zero.
        gaps: of w, (*, d, d).
        filters: drop couplings at rounding level between tied vectors.
        saturates: clamp products with the gap matrix that would overflow.
    """
    w, V = eigenpairs
    native = choice.kernel_for_derivatives(V)
    if native is None:
        return None
    K = 0.0 if cotangents[1] is None else _fitting(gaps(w), V)
    if K is None or not _of_type(V.dtype, *eigenpairs, *cotangents):
        return None
    return native.eigh_gradient(eigenpairs, cotangents, K, filters, saturates)


def svd_gradient(
    factors: tuple[Tensor, Tensor, Tensor],
    cotangents: tuple[Tensor | None, Tensor | None, Tensor | None],
    gaps: Gaps,
    filters: bool,
    saturates: bool,
) -> Tensor | None:
    """Return the gradient (*, m, n) with respect to a matrix, or None if the kernel does not compute it.

    Args:
        factors: U (*, m, k), S (*, k) and Vh (*, k, n).
        cotangents: the gradients with respect to them; None for zero.
        gaps: of S, (*, k, k).
        filters, saturates: as in :func:`eigh_gradient`.
    """
    native = choice.kernel_for_svd_gradient(factors[0], factors[2])
    if native is None:
        return None
    U, S, _ = factors
    K = _fitting(gaps(S), S.unsqueeze(-1).expand(*S.shape, S.shape[-1]))
    if K is None or not _of_type(U.dtype, *factors, *cotangents):
        return None
    return native.svd_gradient(factors, cotangents, K, filters, saturates)


def polar_gradient(Q: Tensor, h: Tensor, Vh: Tensor, G: Tensor) -> Tensor | None:
    """Return the gradient (*, m, n) with respect to M = Q V diag(h) Vh from that with respect to Q, or None.

    It is that of a singular value decomposition without gaps: U = Q V and V turn against each other only. The last
    of h may be negative.
    """
    native = choice.kernel_for_svd_gradient(Q, Vh) if max(Q.shape[-2:]) <= _SMALL else None
    if native is None or not _of_type(Q.dtype, h, Vh, G):
        return None
    V, gaps = Vh.mT, h.new_zeros(*h.shape, h.shape[-1])
    U = Q @ V
    if Q.shape[-2] > Q.shape[-1]:
        return native.svd_gradient((U, h, Vh), (G @ V, None, U.mT @ G), gaps, False, False)
    # For square matrices both cotangents say the same, so one of them can stand for both.
    return native.svd_gradient((U, h, Vh), (G @ (2 * V), None, None), gaps, False, False)


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
