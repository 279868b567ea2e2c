"""Eigenvalue and singular value decompositions with a choice of gradient."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..autograd.singular_vectors import completed
from ..dispatch.overrides import overridable
from ..errors import check_matrix, check_square
from ..precision import full_precision, narrow, widen
from ..rules import Method, resolve


class EighResult(NamedTuple):
    """Ascending eigenvalues (*, d) and the corresponding eigenvectors (*, d, d) as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@overridable
def eigh(A: Tensor, *, method: str | Method = "svd-pade") -> EighResult:
    r"""Compute the eigenvalues and eigenvectors of Hermitian matrices, with a gradient that is finite at ties.

    .. math:: A = V\,\mathrm{diag}(\lambda)\,V^H,\qquad \lambda_1\le\dots\le\lambda_d .

    The conventions are those of :func:`torch.linalg.eigh`: only the lower triangle is read, eigenvalues are in
    ascending order, and eigenvectors are columns. The gradient is Hermitian; ``method`` determines how it is formed.

    At a tie (equal eigenvalues), a loss that depends only on the eigenspace as a whole, such as its projector or the
    sum of its eigenvalues, has its true gradient. A loss that depends on single eigenvectors has no gradient there; the
    bound documented for the method applies. A matrix function composed from ``eigenvalues`` and ``eigenvectors`` loses
    the entries of its gradient between tied eigenvectors, whatever the method. Use :func:`matrix_sqrt` or another
    matrix function instead; these do not divide by eigenvalue gaps.

    Args:
        A: Hermitian matrices (*, d, d), real or complex; half types are computed in float32.
        method: a name from ``methods("eigh")`` or a method object.

    Returns:
        named tuple ``(eigenvalues, eigenvectors)`` of shapes (*, d) and (*, d, d).

    Raises:
        NonFiniteError: the input contains NaN or Inf; the message lists the batch positions.
        SolverError: no solver could decompose a matrix.
        MethodError: the method is unknown or not available for ``eigh``.

    Example:
        >>> A = torch.eye(3, requires_grad=True)
        >>> w, V = eigh(A)
        >>> (V[:, 1:] @ V[:, 1:].T).diagonal().sum().backward()   # torch.linalg.eigh gives NaN here
        >>> A.grad
        tensor([[0., 0., 0.],
                [0., 0., 0.],
                [0., 0., 0.]])

    Reference: derived in :mod:`spectralgrad.autograd.eigenvectors`; each method cites its paper.
    """
    rule = resolve(method, "eigh")
    found = rule.decompose_at_once(A)
    if found is not None:
        return EighResult(*found)
    check_square(A, "eigh")
    with full_precision(A):
        w, V = rule.decompose(widen(A), "eigh")
    return EighResult(narrow(w, A.dtype), narrow(V, A.dtype))


class SVDResult(NamedTuple):
    """Left vectors U (*, m, k), descending singular values S (*, k), right vectors Vh (*, k, n)."""

    U: Tensor
    S: Tensor
    Vh: Tensor


@overridable
def svd(M: Tensor, full_matrices: bool = False, *, method: str | Method = "svd-pade") -> SVDResult:
    r"""Compute the singular value decomposition, with a gradient that is finite at ties and at rank deficiency.

    .. math:: M = U\,\mathrm{diag}(\sigma)\,V^H,\qquad \sigma_1\ge\dots\ge\sigma_k\ge 0,\ k=\min(m,n).

    The conventions are those of :func:`torch.linalg.svd`. A loss that depends on M only through the product of the
    factors has its exact gradient at any rank, provided that the non-zero singular values are distinct. With
    ``full_matrices=True`` the additional columns follow the orthogonal complement of the others; their rotation among
    themselves is arbitrary and has no gradient.

    Args:
        M: matrices (*, m, n), real or complex; half types are computed in float32.
        full_matrices: return square U and Vh.
        method: a name from ``methods("svd")`` or a method object; its rule is applied to the singular values.

    Returns:
        named tuple ``(U, S, Vh)`` of shapes (*, m, k), (*, k) and (*, k, n), or (*, m, m), (*, k) and (*, n, n) with
        ``full_matrices=True``.

    Raises:
        NonFiniteError, SolverError, MethodError: as in :func:`eigh`.

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
    return SVDResult(narrow(U, M.dtype), narrow(S, M.dtype), narrow(Vh, M.dtype))
