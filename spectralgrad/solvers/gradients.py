"""Gradients of decompositions in one call of the kernel.

They cannot be differentiated again, and are for eager mode only: compilers and transforms use the same formulas in
torch, into which they can see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..native import kernel
from ..native.functions import checked
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

    All tensors must be :func:`spectralgrad.dispatch.function.eager`.

    Args:
        factors: U (*, m, k), S (*, k) and Vh (*, k, n).
        cotangents: the gradients with respect to them; None for zero.
        gaps: of S, (*, k, k).
        filters, saturates: as in :func:`eigh_gradient`.
    """
    U, S, Vh = factors
    plan = _plan_for(U, Vh)
    if plan is None or not _of_type(U.dtype, *factors, *cotangents):
        return None
    K = gaps(S)
    if isinstance(K, Tensor):
        K = _fitting(K, S.unsqueeze(-1).expand(*S.shape, S.shape[-1]))
    return None if K is None else _by_plan(plan, (*factors, *cotangents), K, filters, saturates)


class _Plan(NamedTuple):
    """The C function, its sizes, and the shape of the gradient, for singular vectors of one shape and type."""

    run: Any
    sizes: tuple[int, ...]
    shape: tuple[int, ...]


def _plan_for(U: Tensor, Vh: Tensor) -> _Plan | None:
    return None if kernel() is None or not U.is_cpu else _plan(U.shape, Vh.shape, U.dtype)


@lru_cache(maxsize=1024)
def _plan(left: torch.Size, right: torch.Size, dtype: torch.dtype) -> _Plan | None:
    """Return the plan for U and Vh of these shapes, or None if the kernel does not compute the gradient."""
    native = choice.kernel_for_gradient(left, right, dtype)
    if native is None:
        return None
    shape = *left[:-1], right[-1]
    return _Plan(native.function("svd_gradient", dtype), (left[:-2].numel(), *shape[-2:]), shape)


def _by_plan(
    plan: _Plan, tensors: Sequence[Tensor | None], gaps: Tensor | float, filters: bool = False, saturates: bool = False
) -> Tensor:
    """Call the C function without the checks of ``Kernel.svd_gradient``, which eager tensors do not need."""
    K, floor = (gaps, 0.0) if isinstance(gaps, Tensor) else (None, gaps)
    given = [x if x is None or x.is_contiguous() else x.contiguous() for x in (*tensors, K)]
    pointers = [None if x is None else x.data_ptr() for x in given]
    if 0 in pointers:
        raise RuntimeError("svd: the memory of a saved tensor or of a cotangent was freed before the backward pass")
    gM = tensors[0].new_empty(*plan.shape)  # type: ignore[union-attr]
    tail = floor, filters, saturates, torch.get_num_threads()
    checked("svd_gradient", plan.run(*pointers, gM.data_ptr(), *plan.sizes, *tail))
    return gM


def polar_gradient(Q: Tensor, h: Tensor, Vh: Tensor, G: Tensor) -> Tensor | None:
    """Return the gradient (*, m, n) with respect to M = Q V diag(h) Vh from that with respect to Q, or None.

    It is that of a singular value decomposition without gaps: U = Q V and V turn against each other only. The last
    of h may be negative.
    """
    plan = None if max(Q.shape[-2:]) > _SMALL else _plan_for(Q, Vh)
    if plan is None or not _of_type(Q.dtype, h, Vh, G):
        return None
    V = Vh.mT
    U = Q @ V
    # For square matrices both cotangents say the same, so one of them can stand for both.
    tall = Q.shape[-2] > Q.shape[-1]
    cotangents = (G @ V, None, U.mT @ G) if tall else (G @ (2 * V), None, None)
    return _by_plan(plan, (U, h, Vh, *cotangents), h.new_zeros(*h.shape, h.shape[-1]))


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
