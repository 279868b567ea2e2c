"""Gradients of decompositions in one call of the kernel.

They cannot be differentiated again, and are for eager mode only: compilers and transforms use the same formulas in
torch, into which they can see.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from . import choice

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
    K = 0.0 if cotangents[1] is None else gaps(w)
    return None if K is None else native.eigh_gradient(eigenpairs, cotangents, K, filters, saturates)


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
    K = gaps(factors[1])
    return None if K is None else native.svd_gradient(factors, cotangents, K, filters, saturates)
