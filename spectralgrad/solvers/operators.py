"""The whole forward pass as two operators known to torch.library.

Checks, driver and ladder sit inside one opaque operator with a shape rule and a vmap rule, so eager mode,
``torch.compile(fullgraph=True)`` and ``torch.func.vmap`` all run the same code. The operators have no
derivative of their own: the autograd functions of this package stand around them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import orthogonal, positive
from .ladder import EIGH, SVD


@torch.library.custom_op("spectralgrad::eigh", mutates_args=())
def eigh(A: Tensor, operation: str = "eigh") -> tuple[Tensor, Tensor]:
    """Ascending eigenvalues (*, d) and eigenvectors (*, d, d) of Hermitian ``A``, lower triangle read."""
    w, V = EIGH.solve(A, operation)
    return w.contiguous(), V.contiguous()


@eigh.register_fake
def _(A: Tensor, operation: str = "eigh") -> tuple[Tensor, Tensor]:
    return A.new_empty(A.shape[:-1], dtype=A.dtype.to_real()), A.new_empty(A.shape)


@eigh.register_vmap
def _(info, in_dims, A, operation="eigh"):  # type: ignore[no-untyped-def]
    return eigh(A.movedim(in_dims[0], 0), operation), (0, 0)


@torch.library.custom_op("spectralgrad::svd", mutates_args=())
def svd(M: Tensor, operation: str = "svd") -> tuple[Tensor, Tensor, Tensor]:
    """Reduced singular value decomposition U (*, m, k), S (*, k), Vh (*, k, n)."""
    U, S, Vh = SVD.solve(M, operation)
    return U.contiguous(), S.contiguous(), Vh.contiguous()


@svd.register_fake
def _(M: Tensor, operation: str = "svd") -> tuple[Tensor, Tensor, Tensor]:
    *batch, m, n = M.shape
    k = min(m, n)
    return M.new_empty(*batch, m, k), M.new_empty(*batch, k, dtype=M.dtype.to_real()), M.new_empty(*batch, k, n)


@svd.register_vmap
def _(info, in_dims, M, operation="svd"):  # type: ignore[no-untyped-def]
    return svd(M.movedim(in_dims[0], 0), operation), (0, 0, 0)


@torch.library.custom_op("spectralgrad::root", mutates_args=())
def root(A: Tensor, operation: str, inverse: bool, rtol: float, clamp: bool) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`spectralgrad.solvers.positive.root`."""
    S, w, V = positive.root(A, operation, inverse, rtol, clamp)
    return S.contiguous(), w, V.contiguous()


@root.register_fake
def _(A: Tensor, operation: str, inverse: bool, rtol: float, clamp: bool) -> tuple[Tensor, Tensor, Tensor]:
    return A.new_empty(A.shape), A.new_empty(A.shape[:-1], dtype=A.dtype.to_real()), A.new_empty(A.shape)


@root.register_vmap
def _(info, in_dims, A, operation, inverse, rtol, clamp):  # type: ignore[no-untyped-def]
    return root(A.movedim(in_dims[0], 0), operation, inverse, rtol, clamp), (0, 0, 0)


@torch.library.custom_op("spectralgrad::root_derivative", mutates_args=())
def root_derivative(V: Tensor, w: Tensor, G: Tensor, inverse: bool) -> Tensor:
    """See :func:`spectralgrad.solvers.positive.root_derivative`."""
    return positive.root_derivative(V, w, G, inverse)


@root_derivative.register_fake
def _(V: Tensor, w: Tensor, G: Tensor, inverse: bool) -> Tensor:
    return G.new_empty(G.shape)


@root_derivative.register_vmap
def _(info, in_dims, V, w, G, inverse):  # type: ignore[no-untyped-def]
    V, w, G = (
        x.unsqueeze(0).expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip((V, w, G), in_dims[:3], strict=True)
    )
    return root_derivative(V, w, G, inverse), 0


@torch.library.custom_op("spectralgrad::polar_factors", mutates_args=())
def polar_factors(M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`spectralgrad.solvers.orthogonal.polar_factors`."""
    Q, S, Vh = orthogonal.polar_factors(M)
    return Q.contiguous(), S.contiguous(), Vh.contiguous()


@polar_factors.register_fake
def _(M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    *batch, _, n = M.shape
    return M.new_empty(M.shape), M.new_empty(*batch, n, dtype=M.dtype.to_real()), M.new_empty(*batch, n, n)


@polar_factors.register_vmap
def _(info, in_dims, M):  # type: ignore[no-untyped-def]
    return polar_factors(M.movedim(in_dims[0], 0)), (0, 0, 0)
