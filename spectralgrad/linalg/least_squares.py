"""Least squares and pseudo-inverses of matrices of any shape and rank, with the derivative at constant rank."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..autograd.functions.domain import Domain
from ..autograd.functions.rescaling import homogeneous
from ..autograd.functions.scalar_functions import whole_power
from ..autograd.pairwise import norm
from ..autograd.singular import least_squares
from ..autograd.singular.functions import Triplets, decomposed
from ..autograd.singular.least_squares import Support
from ..dispatch.arguments import check_range, check_tolerance
from ..dispatch.finite import check_finite
from ..dispatch.overrides import overridable
from ..errors import ShapeError, broadcast, check_matrix, check_square, common_shape
from ..precision import full_precision, narrow, number, quotient, rank_tolerance, widen
from ..rules import resolve
from .matrix_functions import check_of_batch

__all__ = ["lstsq", "pinv", "solve_hermitian"]


class LeastSquaresResult(NamedTuple):
    """Solution (*, n, r), residual (*, r), rank (*,) and margin (*,); see :func:`lstsq`."""

    solution: Tensor
    residual: Tensor
    rank: Tensor
    margin: Tensor


@overridable
def pinv(M: Tensor, *, rtol: float | None = None) -> Tensor:
    r"""Compute the Moore–Penrose pseudo-inverse :math:`M^+`, with the derivative at constant rank.

    .. math:: \bar M=-M^{+H}\bar P\,M^{+H}+(I-MM^+)\bar P^HM^+M^{+H}+M^{+H}M^+\bar P^H(I-M^+M) .

    No singular value gap is divided by, so derivatives of any order are exact at equal singular values. The
    pseudo-inverse jumps where the rank does: for a singular M the derivative is that within the matrices of the same
    rank, and ``margin`` of :func:`lstsq` says how far the next rank is.

    Args:
        M: matrices (*, m, n), real or complex; half types are computed in float32.
        rtol: singular values up to ``rtol`` times the largest count as zero; by default
            :math:`\epsilon\max(8,3\sqrt{\max(m,n)})`.

    Returns:
        the pseudo-inverse (*, n, m).

    Raises:
        NonFiniteError: the input contains NaN or Inf.
        ArgumentError: ``rtol`` is not a number from 0 to 1.

    Example:
        >>> M = torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]], requires_grad=True)
        >>> P = pinv(M)
        >>> P.detach()
        tensor([[0.5000, 0.0000, 0.0000],
                [0.0000, 0.0000, 0.0000]])
        >>> P.sum().backward()
        >>> M.grad                                     # 1/σ² outside the range; nothing within the null space
        tensor([[-0.2500,  0.2500],
                [ 0.2500,  0.0000],
                [ 0.2500,  0.0000]])

    Reference: Golub and Pereyra, The differentiation of pseudo-inverses and nonlinear least squares problems whose
    variables separate (1973).
    """
    check_matrix(M, "pinv")
    tolerance = _tolerance(M, rtol, "pinv")

    def inverse(M: Tensor) -> Tensor:
        triplets = decomposed(M, "pinv")
        return least_squares.pseudo_inverse(M, triplets, least_squares.support(triplets.S, tolerance, None).chosen)

    with full_precision(M):
        return narrow(homogeneous(inverse, (widen(M),), ((1,), (-1,))), M.dtype)


@overridable
def lstsq(M: Tensor, B: Tensor, *, rtol: float | None = None, damping: float | Tensor = 0.0) -> LeastSquaresResult:
    r"""Solve the least-squares problem of minimum norm, for any shape and rank, with gradients in M, B and the damping.

    .. math:: \min_X\ \lVert MX-B\rVert^2+\delta^2\lVert X\rVert^2,\qquad
              X=M^+B\ \text{ for }\ \delta=0 .

    The derivative of :math:`M^+` is that within the matrices of the same rank (:func:`pinv`), so it is exact at equal
    singular values and at rank loss. X jumps where the rank of M changes; ``margin`` shows when that is near. With
    damping above the rank tolerance X is smooth at any rank, and so is its derivative; smaller damping does not make
    singular values count that are below the tolerance.

    Args:
        M: matrices (*, m, n), real or complex; half types are computed in float32.
        B: right-hand sides (*, m, r) of the same dtype; batch dimensions broadcast.
        rtol: as in :func:`pinv`.
        damping: δ ≥ 0, as in :func:`scipy.sparse.linalg.lsqr`; the regularisation is its square. A tensor must
            broadcast against the batch (*,) and may require a gradient.

    Returns:
        named tuple ``(solution, residual, rank, margin)``: X (*, n, r); the norm of each column of MX − B (*, r); the
        rank of M (*,); and the distance to the next rank (*,): the smallest change of M in the spectral norm, relative
        to the largest singular value, that moves a singular value across the tolerance. Only X has a gradient.

    Raises:
        NonFiniteError: the input contains NaN or Inf.
        ShapeError: the shapes or dtypes do not fit together.
        ArgumentError: ``rtol`` is not a number from 0 to 1, or ``damping`` is a negative number.

    Example:
        >>> M = torch.tensor([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]])          # rank one
        >>> found = lstsq(M, torch.tensor([[1.0], [3.0], [2.0]]))
        >>> found.solution.mT.round(decimals=4), found.rank
        (tensor([[1., 1.]]), tensor(1))
        >>> found.residual.square().round(decimals=4)                       # (1 − 2)² + (3 − 2)² + 2²
        tensor([6.])
        >>> damping = torch.tensor(1.0, requires_grad=True)
        >>> damped = lstsq(M, M.sum(-1, keepdim=True), damping=damping).solution    # σ²/(σ² + δ²) = 4/5
        >>> damped.detach().mT.round(decimals=4)
        tensor([[0.8000, 0.8000]])

    Reference: as in :func:`pinv`; Paige and Saunders, LSQR (1982), for the damping.
    """
    _check_sides(M, B, "lstsq")
    tolerance = _tolerance(M, rtol, "lstsq")
    batch = common_shape(M.shape[:-2], B.shape[:-2])
    if isinstance(damping, Tensor):
        check_of_batch(damping, "damping", M.expand(*batch, *M.shape[-2:]), "lstsq")
    else:
        check_range(damping, "damping", "lstsq", 0)

    def solved(M: Tensor, B: Tensor, *damping: Tensor) -> tuple[Tensor, ...]:
        return _solved(M, B, damping[0] if damping else None, tolerance)

    with full_precision(M):
        wide = widen(M), widen(B)
        given = isinstance(damping, Tensor) or damping > 0
        level = (number(damping, wide[0].real)[..., None, None],) if given else ()
        same, none = (1,) * len(level), (0,) * len(level)
        degrees = ((1, 0, *same), (-1, 0, 0, 0)), ((0, 1, *none), (1, 1, 0, 0))
        X, residual, rank, margin = homogeneous(solved, (*wide, *level), *degrees)
        X, residual, margin = (narrow(x, M.dtype) for x in (X, residual, margin))
        return LeastSquaresResult(X, residual, rank.to(torch.int64), margin)


def _solved(M: Tensor, B: Tensor, damping: Tensor | None, rtol: float) -> tuple[Tensor, ...]:
    """Return the solution, the norms of the residuals, the rank as a number of the real type, and the margin."""
    batch = common_shape(M.shape[:-2], B.shape[:-2])
    triplets = decomposed(M, "lstsq")
    S = triplets.S
    if damping is not None:
        damping = damping.expand(*common_shape(batch, damping.shape[:-2]), 1, 1)
    kept = least_squares.support(S, rtol, None if damping is None else damping.squeeze(-1))
    above = kept.threshold < S
    size = norm(S).unsqueeze(-1)
    apart = quotient((S - kept.threshold).abs(), size, size > 0)
    margin = apart.amin(-1) if S.shape[-1] else apart.new_full(S.shape[:-1], torch.inf)
    M, B, *factors = (x.expand(*batch, *x.shape[-2:]) for x in (M, B, triplets.U, S.unsqueeze(-2), triplets.Vh))
    U, S, Vh = factors[0], factors[1].squeeze(-2), factors[2]
    every = Support(*(None if x is None else x.expand(*batch, x.shape[-1]) for x in kept))  # type: ignore[arg-type]
    X, R = least_squares.solve(M, B, damping, Triplets(U, S, Vh), every)
    return X, torch.linalg.vector_norm(R, dim=-2), *(x.expand(batch) for x in (above.sum(-1).to(S.dtype), margin))


@overridable
def solve_hermitian(A: Tensor, B: Tensor, *, rtol: float | None = None) -> Tensor:
    r"""Solve :math:`AX=B` for Hermitian A on the range of A, :math:`X=A^+B`, with gradients in A and B.

    A may be indefinite. For a singular A the result is the least-squares solution of minimum norm, and the derivative
    is that within the matrices of the same rank; B need not be in the range, and the part outside is left out.

    Args:
        A: Hermitian matrices (*, d, d), real or complex; half types are computed in float32.
        B: right-hand sides (*, d, r) of the same dtype; batch dimensions broadcast.
        rtol: eigenvalues up to ``rtol`` times the largest in modulus count as zero; by default
            :math:`\epsilon\max(8,3\sqrt d)`.

    Returns:
        X (*, d, r).

    Raises:
        AsymmetricError, NonFiniteError: as in :func:`matrix_sqrt`, for A; B must be finite.
        ShapeError: the shapes or dtypes do not fit together.

    Example:
        >>> A = torch.diag(torch.tensor([2.0, -4.0, 0.0])).requires_grad_()
        >>> X = solve_hermitian(A, torch.ones(3, 1))
        >>> X.detach().mT
        tensor([[ 0.5000, -0.2500,  0.0000]])
        >>> X.sum().backward()
        >>> A.grad.isfinite().all()
        tensor(True)

    Reference: as in :func:`pinv`.
    """
    check_square(A, "solve_hermitian, A")
    _check_sides(A, B, "solve_hermitian", "A")
    domain = Domain.of(A, "solve_hermitian", _tolerance(A, rtol, "solve_hermitian"), clamp=False, positive=False)
    inverse, rule = whole_power(-1), resolve("exact", "power")

    def solved(A: Tensor, B: Tensor) -> Tensor:
        return rule.function(A, inverse, domain) @ B

    with full_precision(A):
        return narrow(homogeneous(solved, (widen(A), widen(B)), ((1, 0), (-1,)), ((0, 1), (1,))), A.dtype)


def _tolerance(M: Tensor, rtol: float | None, operation: str) -> float:
    check_tolerance(rtol, operation)
    return rank_tolerance(max(M.shape[-2:]), M.dtype) if rtol is None else float(rtol)


def _check_sides(M: Tensor, B: Tensor, operation: str, name: str = "M") -> None:
    check_matrix(M, f"{operation}, {name}")
    check_matrix(B, f"{operation}, B")
    fit = M.shape[-2] == B.shape[-2] and broadcast(M.shape[:-2], B.shape[:-2])
    if not fit or M.dtype != B.dtype:
        raise ShapeError(
            f"{operation}: expected {name} (*, m, n) and B (*, m, r) of the same dtype and batch dimensions that "
            f"broadcast, got {tuple(M.shape)} of {M.dtype} and {tuple(B.shape)} of {B.dtype}"
        )
    check_finite(B, f"{operation}, B")
