"""The gradient of an eigendecomposition, in the kernel."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from . import choice


def eigh_gradient(
    eigenpairs: tuple[Tensor, Tensor],
    cotangents: tuple[Tensor | None, Tensor | None],
    gaps: Callable[[Tensor], Tensor | float | None],
    filters: bool,
    saturates: bool,
) -> Tensor | None:
    """Return the gradient (*, d, d) with respect to a symmetric matrix, or None if the kernel does not compute it.

    It cannot be differentiated again, and is for eager mode only: elsewhere the same formula in torch is better,
    because compilers and transforms can see into it.

    Args:
        eigenpairs: eigenvalues w (*, d) and eigenvectors V (*, d, d).
        cotangents: the gradients with respect to them, of which one may be None for zero.
        gaps: given w, returns the gap matrix (*, d, d), or the floor of that of SVD-Padé, or None if neither applies.
        filters: drop couplings at rounding level between tied vectors.
        saturates: clamp products with the gap matrix that would overflow.
    """
    w, V = eigenpairs
    native = choice.kernel_for_derivatives(V)
    if native is None:
        return None
    K = 0.0 if cotangents[1] is None else gaps(w)
    return None if K is None else native.eigh_gradient(eigenpairs, cotangents, K, filters, saturates)
