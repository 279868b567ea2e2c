"""The forward pass as operators registered with torch.library.

Checks, driver and fallbacks form one opaque operator with a shape rule and a vmap rule, so eager mode,
``torch.compile(fullgraph=True)`` and ``torch.func.vmap`` all run the same code. The operators have no derivatives;
these are defined by the autograd functions that call them. In eager mode the function behind the operator is called
directly, which saves the overhead of torch's dispatcher. All calls of the native kernel go through these operators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

from ..dispatch import function
from ..dispatch.torch_internals import conjugates_applied
from . import choice, fused, inverse_roots, orthogonal, pencil
from .call_counts import counts
from .ladder import EIGH, SVD, eigenvalues

P = ParamSpec("P")
R = TypeVar("R")


class Operator(Generic[P, R]):
    """A function of tensors and the torch.library operator made of it; the operator is called only where needed."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function, self.packed, self.__doc__ = function, _packed(function), function.__doc__
        # The solvers look at values (did it converge, is it finite), which a recorded CUDA graph cannot do.
        self.operator = torch.library.custom_op(
            f"spectralgrad::{function.__name__}", self.packed, mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,)
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        tensors = [x for x in args if isinstance(x, Tensor)]
        if not function.eager(*tensors):
            result: R = self.operator(*args, **kwargs)
            return result
        if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            args = tuple(x.detach() if isinstance(x, Tensor) else x for x in args)  # type: ignore[assignment]
        run = self.function if all(x.numel() for x in tensors) else self.packed
        return run(*args, **kwargs)


def _packed(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap ``function`` so that its results are contiguous, as the shape rule promises, including empty ones.

    ``contiguous()`` alone does not change the strides of an empty tensor. Eager calls skip this wrapper unless an input
    is empty.
    """

    def pack(x: Tensor) -> Tensor:
        return x.contiguous() if x.numel() else x.new_empty(x.shape)

    @wraps(function)
    def packed(*args: P.args, **kwargs: P.kwargs) -> R:
        with conjugates_applied():
            result = function(*args, **kwargs)
        return pack(result) if isinstance(result, Tensor) else tuple(map(pack, result))  # type: ignore

    return packed


@Operator
def eigh(A: Tensor, operation: str = "eigh", dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Return ascending eigenvalues (*, d) and eigenvectors (*, d, d) of Hermitian ``A``.

    The lower triangle is read. With a ``dtype``, asymmetry beyond its rounding error is an error.
    """
    w, V = EIGH.solve(A, operation, dtype)
    return w, V  # LAPACK's are in column-major order; only the operator makes them contiguous


@eigh.operator.register_fake
def _(A: Tensor, operation: str = "eigh", dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    return A.new_empty(A.shape[:-1], dtype=A.dtype.to_real()), A.new_empty(A.shape)


@eigh.operator.register_vmap
def _(info, in_dims, A, *settings):  # type: ignore[no-untyped-def]
    return eigh(A.movedim(in_dims[0], 0), *settings), (0, 0)


@Operator
def eigvalsh(A: Tensor, operation: str = "eigvalsh") -> Tensor:
    """Return ascending eigenvalues (*, d) of Hermitian ``A`` (lower triangle read); no vectors are computed."""
    return eigenvalues(A, operation)


@eigvalsh.operator.register_fake
def _(A: Tensor, operation: str = "eigvalsh") -> Tensor:
    return A.new_empty(A.shape[:-1], dtype=A.dtype.to_real())


@eigvalsh.operator.register_vmap
def _(info, in_dims, A, operation="eigvalsh"):  # type: ignore[no-untyped-def]
    return eigvalsh(A.movedim(in_dims[0], 0), operation), 0


@Operator
def pencil_eigh(A: Tensor, B: Tensor, operation: str = "eigh") -> tuple[Tensor, Tensor]:
    """See :func:`spectralgrad.solvers.pencil.eigh`."""
    w, X = pencil.eigh(A, B, operation)
    return w, X


@pencil_eigh.operator.register_fake
def _(A: Tensor, B: Tensor, operation: str = "eigh") -> tuple[Tensor, Tensor]:
    return A.new_empty(A.shape[:-1], dtype=A.dtype.to_real()), A.new_empty(A.shape)


@pencil_eigh.operator.register_vmap
def _(info, in_dims, A, B, operation="eigh"):  # type: ignore[no-untyped-def]
    A, B = in_front(info.batch_size, in_dims, A, B)
    return pencil_eigh(A, B, operation), (0, 0)


@Operator
def pencil_eigvalsh(A: Tensor, B: Tensor, operation: str = "eigvalsh") -> Tensor:
    """See :func:`spectralgrad.solvers.pencil.eigvalsh`."""
    return pencil.eigvalsh(A, B, operation)


@pencil_eigvalsh.operator.register_fake
def _(A: Tensor, B: Tensor, operation: str = "eigvalsh") -> Tensor:
    return A.new_empty(A.shape[:-1], dtype=A.dtype.to_real())


@pencil_eigvalsh.operator.register_vmap
def _(info, in_dims, A, B, operation="eigvalsh"):  # type: ignore[no-untyped-def]
    A, B = in_front(info.batch_size, in_dims, A, B)
    return pencil_eigvalsh(A, B, operation), 0


@Operator
def svd(M: Tensor, operation: str = "svd") -> tuple[Tensor, Tensor, Tensor]:
    """Return the reduced singular value decomposition U (*, m, k), S (*, k), Vh (*, k, n)."""
    U, S, Vh = SVD.solve(M, operation)
    return U.contiguous(), S, Vh.contiguous()


@svd.operator.register_fake
def _(M: Tensor, operation: str = "svd") -> tuple[Tensor, Tensor, Tensor]:
    *batch, m, n = M.shape
    k = min(m, n)
    return M.new_empty(*batch, m, k), M.new_empty(*batch, k, dtype=M.dtype.to_real()), M.new_empty(*batch, k, n)


@svd.operator.register_vmap
def _(info, in_dims, M, operation="svd"):  # type: ignore[no-untyped-def]
    return svd(M.movedim(in_dims[0], 0), operation), (0, 0, 0)


@Operator
def svdvals(M: Tensor, operation: str = "svdvals") -> Tensor:
    """Return descending singular values (*, k); where the kernel serves, no vectors are computed."""
    by_kernel = choice.svdvals_by_kernel(M)
    if by_kernel is not None:
        S, failed = by_kernel
        if failed:  # the others keep their values, which do not depend on these
            SVD.readable(M, operation)
            at = S.isnan().any(-1)
            S[at] = SVD.solve(M[at], operation)[1]
        counts.call(M.shape[:-2].numel() - failed)
        return S
    return SVD.solve(M, operation)[1]


@svdvals.operator.register_fake
def _(M: Tensor, operation: str = "svdvals") -> Tensor:
    return M.new_empty(*M.shape[:-2], min(M.shape[-2:]), dtype=M.dtype.to_real())


@svdvals.operator.register_vmap
def _(info, in_dims, M, operation="svdvals"):  # type: ignore[no-untyped-def]
    return svdvals(M.movedim(in_dims[0], 0), operation), 0


@Operator
def root_and_eigenpairs(
    A: Tensor, operation: str, inverse: bool, rtol: float, clamp: bool, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`spectralgrad.solvers.fused.root_and_eigenpairs`."""
    return fused.root_and_eigenpairs(A, operation, inverse, rtol, clamp, dtype)


@root_and_eigenpairs.operator.register_fake
def _(
    A: Tensor, operation: str, inverse: bool, rtol: float, clamp: bool, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    return A.new_empty(A.shape), A.new_empty(A.shape[:-1], dtype=A.dtype.to_real()), A.new_empty(A.shape)


@root_and_eigenpairs.operator.register_vmap
def _(info, in_dims, A, *settings):  # type: ignore[no-untyped-def]
    return root_and_eigenpairs(A.movedim(in_dims[0], 0), *settings), (0, 0, 0)


@Operator
def root_derivative(V: Tensor, s: Tensor, G: Tensor, inverse: bool, terms: int = 0) -> Tensor:
    """See :func:`spectralgrad.solvers.fused.root_derivative`."""
    return fused.root_derivative(V, s, G, inverse, terms)


@root_derivative.operator.register_fake
def _(V: Tensor, s: Tensor, G: Tensor, inverse: bool, terms: int = 0) -> Tensor:
    return G.new_empty(G.shape)


@root_derivative.operator.register_vmap
def _(info, in_dims, V, s, G, inverse, terms=0):  # type: ignore[no-untyped-def]
    V, s, G = in_front(info.batch_size, in_dims, V, s, G)
    return root_derivative(V, s, G, inverse, terms), 0


@Operator
def function_derivative(V: Tensor, gamma: Tensor, G: Tensor) -> Tensor:
    """See :func:`spectralgrad.solvers.fused.function_derivative`."""
    return fused.function_derivative(V, gamma, G)


@function_derivative.operator.register_fake
def _(V: Tensor, gamma: Tensor, G: Tensor) -> Tensor:
    return G.new_empty(G.shape)


@function_derivative.operator.register_vmap
def _(info, in_dims, V, gamma, G):  # type: ignore[no-untyped-def]
    V, gamma, G = in_front(info.batch_size, in_dims, V, gamma, G)
    return function_derivative(V, gamma, G), 0


def in_front(batch: int, dims: tuple[int | None, ...], *tensors: Tensor) -> list[Tensor]:
    """Move the mapped dimension of each tensor to the front; expand tensors that are not mapped."""
    return [
        x.unsqueeze(0).expand(batch, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip(tensors, dims, strict=False)
    ]


@Operator
def polar_factors(M: Tensor, operation: str = "polar") -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`spectralgrad.solvers.orthogonal.polar_factors`."""
    Q, S, Vh = orthogonal.polar_factors(M, operation)
    return Q, S, Vh.contiguous()


@polar_factors.operator.register_fake
def _(M: Tensor, operation: str = "polar") -> tuple[Tensor, Tensor, Tensor]:
    *batch, _, n = M.shape
    return M.new_empty(M.shape), M.new_empty(*batch, n, dtype=M.dtype.to_real()), M.new_empty(*batch, n, n)


@polar_factors.operator.register_vmap
def _(info, in_dims, M, operation="polar"):  # type: ignore[no-untyped-def]
    return polar_factors(M.movedim(in_dims[0], 0), operation), (0, 0, 0)


@Operator
def rotations(M: Tensor, operation: str = "polar") -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`spectralgrad.solvers.orthogonal.rotations`."""
    Q, h, Vh = orthogonal.rotations(M, operation)
    return Q, h, Vh.contiguous()


@rotations.operator.register_fake
def _(M: Tensor, operation: str = "polar") -> tuple[Tensor, Tensor, Tensor]:
    return M.new_empty(M.shape), M.new_empty(M.shape[:-1], dtype=M.dtype.to_real()), M.new_empty(M.shape)


@rotations.operator.register_vmap
def _(info, in_dims, M, operation="polar"):  # type: ignore[no-untyped-def]
    return rotations(M.movedim(in_dims[0], 0), operation), (0, 0, 0)


@Operator
def inverse_root(
    A: Tensor,
    operation: str,
    p: float,
    eps: float,
    relative: bool,
    rtol: float,
    clamp: bool,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """See :func:`spectralgrad.solvers.inverse_roots.inverse_root`."""
    return inverse_roots.inverse_root(A, operation, p, eps, relative, rtol, clamp, dtype)


@inverse_root.operator.register_fake
def _(A, *settings, **_):  # type: ignore[no-untyped-def]
    return A.new_empty(A.shape)


@inverse_root.operator.register_vmap
def _(info, in_dims, A, *arguments):  # type: ignore[no-untyped-def]
    return inverse_root(A.movedim(in_dims[0], 0), *arguments), 0
