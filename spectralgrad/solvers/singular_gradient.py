"""The gradient of a singular value decomposition, in the kernel."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from . import choice

Factors = tuple[Tensor, Tensor, Tensor]
Cotangents = tuple[Tensor | None, Tensor | None, Tensor | None]


def svd_gradient(
    factors: Factors,
    cotangents: Cotangents,
    gaps: Callable[[Tensor], Tensor | float | None],
    filters: bool,
    saturates: bool,
) -> Tensor | None:
    """Return the gradient (*, m, n) with respect to a matrix, or None if the kernel does not compute it.

    It cannot be differentiated again, and is for eager mode only: compilers and transforms use the same formula in
    torch, into which they can see.

    Args:
        factors: U (*, m, k), S (*, k) and Vh (*, k, n).
        cotangents: the gradients with respect to them; None for zero.
        gaps: given S, returns the gap matrix (*, k, k), or the floor of that of SVD-Padé, or None if neither applies.
        filters: drop couplings at rounding level between tied vectors.
        saturates: clamp products with the gap matrix that would overflow.
    """
    native = choice.kernel_for_svd_gradient(factors[0], factors[2])
    if native is None:
        return None
    K = gaps(factors[1])
    return None if K is None else native.svd_gradient(factors, cotangents, K, filters, saturates)
