"""Eigenvalue and singular value decompositions with a choice of gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from .. import solvers
from ..autograd import decompositions
from ..autograd.eigen import generalised_vectors
from ..autograd.functions.rescaling import homogeneous
from ..autograd.singular.vectors import completed
from ..dispatch.arguments import check_count
from ..dispatch.overrides import shortened
from ..errors import ArgumentError, MethodError, ShapeError, broadcast, check_matrix, check_square, common_shape
from ..precision import full_precision, narrow, widen
from ..rules import GapMethod, Method, Pade, resolve

__all__ = ["eigh", "svd"]

_DEFAULT = Pade()


class EighResult(NamedTuple):
    """Ascending eigenvalues (*, d) and the corresponding eigenvectors (*, d, d) as columns; of k pairs, d is k."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def _eigh_at_once(A: Tensor) -> EighResult | None:
    found = solvers.eigh.at_once(A)
    return None if found is None else EighResult(*found)


@shortened(_eigh_at_once)
def eigh(
    A: Tensor,
    B: Tensor | None = None,
    *,
    k: int | None = None,
    largest: bool = True,
    method: str | Method = "svd-pade",
) -> EighResult:
    r"""Compute the eigenvalues and eigenvectors of Hermitian matrices, with a gradient that is finite at ties.

    .. math:: A = V\,\mathrm{diag}(\lambda)\,V^H,\qquad \lambda_1\le\dots\le\lambda_d .

    With ``B``, the generalised problem :math:`AV=BV\,\mathrm{diag}(\lambda)`, :math:`V^HBV=I`, with gradients in both.
    With ``k``, only that many eigenpairs are returned; their gradient is complete, including how they rotate into the
    discarded ones.

    The conventions are as in :func:`torch.linalg.eigh`: only the lower triangle is read, eigenvalues are in
    ascending order, and eigenvectors are columns. The gradient is Hermitian; ``method`` determines how it is formed.

    At a tie (equal eigenvalues), a loss that depends only on the eigenspace as a whole, such as its projector or the
    sum of its eigenvalues, has its true gradient. A loss that depends on single eigenvectors has no gradient there; the
    bound documented for the method applies. A matrix function composed from ``eigenvalues`` and ``eigenvectors`` loses
    the entries of its gradient between tied eigenvectors, whatever the method. Use :func:`matrix_sqrt` or another
    matrix function instead; these do not divide by eigenvalue gaps. With the default method, a loss of the eigenvalues
    alone has the second derivatives of :func:`eigvalsh`, also at ties.

    Args:
        A: Hermitian matrices (*, d, d), real or complex; half types are computed in float32.
        B: positive definite matrices of the same shape, up to broadcasting of the batch, and the same dtype.
        k: number of eigenpairs to return, from 0 to d; None for all.
        largest: return the largest k eigenvalues, otherwise the smallest; ascending in both cases.
        method: a name from ``methods("eigh")`` or a method object; with ``B`` it has to be a gap rule.

    Returns:
        named tuple ``(eigenvalues, eigenvectors)`` of shapes (*, d) and (*, d, d), or (*, k) and (*, d, k).

    Raises:
        NonFiniteError: the input contains NaN or Inf; the message lists the batch positions.
        NotDefiniteError: ``B`` is not positive definite, or singular to rounding error.
        SolverError: no solver could decompose a matrix.
        MethodError: the method is unknown or not available for ``eigh``.
        ArgumentError: ``k`` is not an integer from 0 to d, or ``B`` does not match ``A``.

    Example:
        >>> A = torch.eye(3, requires_grad=True)
        >>> w, V = eigh(A)
        >>> (V[:, 1:] @ V[:, 1:].T).diagonal().sum().backward()   # torch.linalg.eigh gives NaN here
        >>> A.grad
        tensor([[0., 0., 0.],
                [0., 0., 0.],
                [0., 0., 0.]])
        >>> w = eigh(torch.diag(torch.tensor([8.0, 2.0])), torch.diag(torch.tensor([4.0, 2.0])), k=1).eigenvalues
        >>> torch.allclose(w, torch.tensor([2.0]))
        True

    Reference: derived in :mod:`spectralgrad.autograd.eigen.vectors` and, for two matrices, in
    :mod:`spectralgrad.autograd.eigen.generalised_vectors`; each method cites its paper.
    """
    rule = resolve(method, "eigh")
    found = rule.decompose_at_once(A) if B is None else None
    if found is None:
        check_square(A, "eigh")
        found = _one(A, rule) if B is None else _two(A, B, rule)
    w, V = found
    if k is not None:
        w, V = (x[..., _kept(k, A.shape[-1], largest, "eigh")] for x in (w, V))
    return EighResult(w, V)


def _one(A: Tensor, rule: Method) -> tuple[Tensor, Tensor]:
    with full_precision(A):
        w, V = rule.decompose(widen(A), "eigh")
    return narrow(w, A.dtype), narrow(V, A.dtype)


def _two(A: Tensor, B: Tensor, rule: Method) -> tuple[Tensor, Tensor]:
    if not isinstance(rule, GapMethod):
        raise MethodError(f"method {rule.name!r} is not available for eigh with B; use a gap rule, such as 'svd-pade'")
    A, B = matching(A, B, "eigh")
    with full_precision(A):
        w, V = scaled_pencil(lambda A, B: generalised_vectors.decompose(A, B, rule, "eigh"), (A, B), (-1, -0.5))
    return narrow(w, A.dtype), narrow(V, A.dtype)


def scaled_pencil(call: Callable[..., Any], pair: tuple[Tensor, ...], degrees: tuple[float, ...]) -> Any:
    """Return eigenvalues, or eigenvalues and vectors, of pencils of any scale; ``degrees`` are those in B."""
    return homogeneous(call, [widen(C) for C in pair], ((1, 0), (1, 0)[: len(degrees)]), ((0, 1), degrees))


def matching(A: Tensor, B: Tensor, operation: str) -> tuple[Tensor, Tensor]:
    """Return both matrices with a common batch shape; raise an error if their sizes or types differ."""
    check_square(B, f"{operation}, B")
    if A.dtype != B.dtype or A.shape[-1] != B.shape[-1]:
        raise ShapeError(
            f"{operation}: expected B of the size and dtype of A, {tuple(A.shape[-2:])} and {A.dtype}, "
            f"got {tuple(B.shape[-2:])} and {B.dtype}"
        )
    if not broadcast(A.shape[:-2], B.shape[:-2]):
        raise ShapeError(
            f"{operation}: expected B to broadcast against the batch {tuple(A.shape[:-2])}, got {tuple(B.shape[:-2])}"
        )
    batch = common_shape(A.shape[:-2], B.shape[:-2])
    return A.expand(*batch, *A.shape[-2:]), B.expand(*batch, *B.shape[-2:])


def _kept(k: int, d: int, largest: bool, operation: str) -> slice:
    check_count(k, "k", operation, 0, d)
    return slice(d - int(k), d) if largest else slice(0, int(k))


class SVDResult(NamedTuple):
    """Left vectors U (*, m, k), descending singular values S (*, k), right vectors Vh (*, k, n)."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _svd_at_once(M: Tensor) -> SVDResult | None:
    found = decompositions.triplets_at_once(M, _DEFAULT)
    return None if found is None else SVDResult(*found)


@shortened(_svd_at_once)
def svd(
    M: Tensor, full_matrices: bool = False, *, k: int | None = None, method: str | Method = "svd-pade"
) -> SVDResult:
    r"""Compute the singular value decomposition, with a gradient that is finite at ties and at rank deficiency.

    .. math:: M = U\,\mathrm{diag}(\sigma)\,V^H,\qquad \sigma_1\ge\dots\ge\sigma_k\ge 0,\ k=\min(m,n).

    The conventions are as in :func:`torch.linalg.svd`. A loss that depends on M only through the product of the
    factors has its exact gradient at any rank, provided that the non-zero singular values are distinct. With
    ``full_matrices=True`` the additional columns follow the orthogonal complement of the others; their rotation among
    themselves is arbitrary and has no gradient. With ``k``, only the leading triplets are returned; their gradient is
    complete, including how they rotate into the discarded ones.

    Args:
        M: matrices (*, m, n), real or complex; half types are computed in float32.
        full_matrices: return square U and Vh.
        k: number of singular triplets to return, from 0 to min(m, n); None for all.
        method: a name from ``methods("svd")`` or a method object; its rule is applied to the singular values.

    Returns:
        named tuple ``(U, S, Vh)`` of shapes (*, m, k), (*, k) and (*, k, n), or (*, m, m), (*, k) and (*, n, n) with
        ``full_matrices=True``.

    Raises:
        NonFiniteError, SolverError, MethodError: as in :func:`eigh`.
        ArgumentError: ``k`` is out of range, or given together with ``full_matrices=True``.

    Example:
        >>> M = torch.ones(3, 2, requires_grad=True)
        >>> U, S, Vh = svd(M)
        >>> (U * S @ Vh).sum().backward()
        >>> torch.allclose(M.grad, torch.ones(3, 2), atol=1e-5)
        True

    Reference: Townsend, Differentiating the singular value decomposition (2016), rearranged in
    :mod:`spectralgrad.autograd.singular.vectors`.
    """
    check_matrix(M, "svd")
    rule = resolve(method, "svd")
    if k is not None and full_matrices:
        raise ArgumentError("svd: expected either k or full_matrices=True, got both")
    with full_precision(M):
        U, S, Vh = rule.decompose_svd(widen(M))
        if full_matrices:
            U, Vh = completed(U), completed(Vh.mH).mH
        if k is not None:
            kept = _kept(k, S.shape[-1], False, "svd")
            U, S, Vh = U[..., kept], S[..., kept], Vh[..., kept, :]
    return SVDResult(narrow(U, M.dtype), narrow(S, M.dtype), narrow(Vh, M.dtype))
