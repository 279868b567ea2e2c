"""Decompositions: eigenvalues and eigenvectors, singular values and singular vectors, with a chosen gradient."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..autograd.singular_vectors import completed
from ..dispatch.overrides import overridable
from ..errors import check_matrix, check_square
from ..precision import full_precision, real_dtype, widen
from ..rules import Method, resolve


class EighResult(NamedTuple):
    """Ascending eigenvalues (*, d) and the eigenvectors (*, d, d) that go with them, as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@overridable
def eigh(A: Tensor, *, method: str | Method = "svd-pade") -> EighResult:
    r"""Eigenvalues and eigenvectors of Hermitian matrices, with a gradient that stays finite at ties.

    .. math:: A = V\,\mathrm{diag}(\lambda)\,V^H,\qquad \lambda_1\le\dots\le\lambda_d .

    The values are those of :func:`torch.linalg.eigh`: the lower triangle is read, eigenvalues ascend, vectors
    are columns. The gradient is Hermitian and formed by ``method``. A loss that sees a
    tied eigenspace only as a whole (its projector, the sum of its eigenvalues) gets its true gradient; a loss of
    single vectors has none at a tie, and the method's documented bound applies. A function of the matrix put
    together from ``eigenvalues`` and ``eigenvectors`` loses entries of its gradient at a tie, which no rule can
    supply: use :func:`matrix_sqrt` and its kin instead, which have no gap at all.

    Args:
        A: Hermitian matrices (*, d, d), real or complex; half types are computed in float32.
        method: a name from :func:`methods` or a method object.

    Returns:
        named tuple ``(eigenvalues, eigenvectors)`` of shapes (*, d) and (*, d, d).

    Raises:
        NonFiniteError: the input holds NaN or Inf; the message names the batch positions.
        SolverError: no solver could decompose a matrix.

    Example:
        >>> A = torch.eye(3, requires_grad=True)
        >>> w, V = eigh(A)
        >>> (V[:, 1:] @ V[:, 1:].T).diagonal().sum().backward()   # torch.linalg.eigh gives NaN here
        >>> A.grad
        tensor([[0., 0., 0.],
                [0., 0., 0.],
                [0., 0., 0.]])

    Reference: the derivation stands in :mod:`spectralgrad.autograd.eigenvectors`; the methods name their papers.
    """
    check_square(A, "eigh")
    rule = resolve(method, "eigh")
    with full_precision(A):
        w, V = rule.decompose(widen(A), "eigh")
    return EighResult(w.to(real_dtype(A.dtype)), V.to(A.dtype))


class SVDResult(NamedTuple):
    """Left vectors U (*, m, k), descending singular values S (*, k), right vectors Vh (*, k, n)."""

    U: Tensor
    S: Tensor
    Vh: Tensor


@overridable
def svd(M: Tensor, full_matrices: bool = False, *, method: str | Method = "svd-pade") -> SVDResult:
    r"""Singular value decomposition with a gradient that stays finite at ties and at rank deficiency.

    .. math:: M = U\,\mathrm{diag}(\sigma)\,V^H,\qquad \sigma_1\ge\dots\ge\sigma_k\ge 0,\ k=\min(m,n).

    Values and order as in :func:`torch.linalg.svd`. A loss that depends on M only through the product of the
    factors gets its exact gradient at any rank, if the non-zero singular values differ. The extra columns of
    ``full_matrices=True`` move with the complement of the others (their rotation among themselves is a free
    choice and has no gradient).

    Args:
        M: matrices (*, m, n), real or complex; half types are computed in float32.
        full_matrices: return square U and Vh.
        method: a name from ``methods("svd")`` or a method object; its rule acts on the singular values.

    Returns:
        named tuple ``(U, S, Vh)``.

    Example:
        >>> M = torch.ones(3, 2, requires_grad=True)
        >>> U, S, Vh = svd(M)
        >>> (U * S @ Vh).sum().backward()
        >>> torch.allclose(M.grad, torch.ones(3, 2), atol=1e-5)
        True

    Reference: Townsend, Differentiating the singular value decomposition (2016), rearranged in
    :mod:`spectralgrad.autograd.singular_vectors`.
    """
    check_matrix(M, "svd")
    rule = resolve(method, "svd")
    with full_precision(M):
        U, S, Vh = rule.decompose_svd(widen(M))
        if full_matrices:
            U, Vh = completed(U), completed(Vh.mH).mH
    return SVDResult(U.to(M.dtype), S.to(real_dtype(M.dtype)), Vh.to(M.dtype))
