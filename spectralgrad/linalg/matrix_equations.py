"""Lyapunov and Sylvester equations, with gradients in all arguments."""

from __future__ import annotations

from torch import Tensor

from .. import solvers
from ..autograd.functions import sylvester
from ..autograd.functions.rescaling import homogeneous
from ..autograd.functions.sylvester import Bases, Schur
from ..dispatch.arguments import check_tolerance
from ..dispatch.finite import check_finite
from ..dispatch.overrides import overridable
from ..errors import ShapeError, broadcast, check_matrix, check_square, common_shape
from ..precision import full_precision, narrow, rank_tolerance, rounded_to, widen

__all__ = ["solve_lyapunov", "solve_sylvester"]


@overridable
def solve_lyapunov(A: Tensor, C: Tensor, *, hermitian: bool = True, rtol: float | None = None) -> Tensor:
    r"""Solve the Lyapunov equation :math:`AX+XA^H=C`, with gradients in A and C.

    .. math:: X=V\Bigl(\frac{(V^HCV)_{ij}}{\lambda_i+\lambda_j}\Bigr)V^H\ \text{ for Hermitian }A,\qquad
              A^HH+HA=\bar X,\quad \bar C=H,\quad \bar A=-HX^H-H^HX .

    There are no eigenvalue gaps in it, so derivatives are exact for equal eigenvalues. A Hermitian A may be indefinite
    or singular: pairs of eigenvalues whose sum vanishes are left out of X, and the derivative is that within the
    matrices for which the same sums vanish.

    Args:
        A: matrices (*, d, d), real or complex; half types are computed in float32.
        C: right-hand sides (*, d, d) of the same dtype, Hermitian or not; batch dimensions broadcast.
        hermitian: A is Hermitian, and the gradient in A too. Otherwise A is any square matrix; its Schur form is
            computed by scipy on a CPU, one matrix after another.
        rtol: a sum :math:`\lambda_i+\lambda_j` of Hermitian A is zero up to ``rtol`` times twice the largest
            :math:`|\lambda|`; by default :math:`\epsilon\max(8,3\sqrt d)`.

    Returns:
        X (*, d, d). The residual AX + XAᴴ − C is not zero if sums vanish and C has a part there.

    Raises:
        AsymmetricError: ``hermitian`` is true and A is not Hermitian, by far more than rounding error.
        ArgumentError: ``hermitian`` is false, and a sum of eigenvalues of A and :math:`\bar A` vanishes to rounding.
        NonFiniteError: the input contains NaN or Inf.
        ImportError: ``hermitian`` is false, and scipy is not installed.

    Example:
        >>> A = torch.diag(torch.tensor([1.0, 3.0])).requires_grad_()
        >>> X = solve_lyapunov(A, torch.ones(2, 2))
        >>> X.detach()
        tensor([[0.5000, 0.2500],
                [0.2500, 0.1667]])
        >>> X.diagonal().sum().backward()
        >>> A.grad.diagonal().round(decimals=4)          # −1/(2λ²)
        tensor([-0.5000, -0.0556])

    Reference: Bartels and Stewart, Solution of the matrix equation AX + XB = C (1972);
    :mod:`spectralgrad.autograd.functions.sylvester`. :func:`spectralgrad.linalg.lyapunov` takes positive semi-definite
    A only, and returns the residual.
    """
    _check(A, None, C, "solve_lyapunov")
    if not hermitian:
        return _general(A, A.mH, C, "solve_lyapunov")
    return _hermitian(A, None, C, rtol, "solve_lyapunov")


@overridable
def solve_sylvester(A: Tensor, B: Tensor, C: Tensor, *, hermitian: bool = True, rtol: float | None = None) -> Tensor:
    r"""Solve the Sylvester equation :math:`AX+XB=C`, with gradients in A, B and C.

    .. math:: X=V\Bigl(\frac{(V^HCW)_{ij}}{\lambda_i+\mu_j}\Bigr)W^H\ \text{ for Hermitian }A,B,\qquad
              A^HH+HB^H=\bar X,\quad \bar C=H,\quad \bar A=-HX^H,\quad \bar B=-X^HH .

    As for :func:`solve_lyapunov`, derivatives are exact for equal eigenvalues, and Hermitian A and B may have pairs of
    eigenvalues whose sum vanishes: these are left out of X.

    Args:
        A: matrices (*, m, m), real or complex; half types are computed in float32.
        B: matrices (*, n, n) of the same dtype.
        C: right-hand sides (*, m, n) of the same dtype; batch dimensions broadcast.
        hermitian: A and B are Hermitian, and their gradients too. Otherwise they are any square matrices; their Schur
            forms are computed by scipy on a CPU, one matrix after another.
        rtol: a sum :math:`\lambda_i+\mu_j` of Hermitian matrices is zero up to ``rtol`` times the sum of the largest
            moduli; by default :math:`\epsilon\max(8,3\sqrt{\max(m,n)})`.

    Returns:
        X (*, m, n). The residual AX + XB − C is not zero if sums vanish and C has a part there.

    Raises:
        AsymmetricError: ``hermitian`` is true and A or B is not Hermitian, by far more than rounding error.
        ArgumentError: ``hermitian`` is false, and a sum of eigenvalues of A and B vanishes to rounding.
        NonFiniteError: the input contains NaN or Inf.
        ImportError: ``hermitian`` is false, and scipy is not installed.

    Example:
        >>> A, B = torch.diag(torch.tensor([1.0, 2.0])), torch.diag(torch.tensor([3.0, -1.0]))
        >>> solve_sylvester(A, B, torch.ones(2, 2))      # 1/(λ + μ); for 1 − 1 = 0 there is no solution
        tensor([[0.2500, 0.0000],
                [0.2000, 1.0000]])

    Reference: as in :func:`solve_lyapunov`.
    """
    _check(A, B, C, "solve_sylvester")
    if not hermitian:
        return _general(A, B, C, "solve_sylvester")
    return _hermitian(A, B, C, rtol, "solve_sylvester")


def _hermitian(A: Tensor, B: Tensor | None, C: Tensor, rtol: float | None, operation: str) -> Tensor:
    """Solve AX + XB = C, or AX + XA = C if B is None, for Hermitian matrices."""
    check_tolerance(rtol, operation)
    tolerance = rank_tolerance(max(C.shape[-2:]), C.dtype) if rtol is None else float(rtol)
    dtype = rounded_to(A)

    def solved(C: Tensor, A: Tensor, B: Tensor | None = None) -> Tensor:
        first = solvers.eigh(A.detach(), f"{operation} with hermitian=True, A", dtype)
        second = first if B is None else solvers.eigh(B.detach(), f"{operation} with hermitian=True, B", dtype)
        bases = Bases.of(first, second, tolerance)
        batch = common_shape(A.shape[:-2], C.shape[:-2], bases.inverse.shape[:-2])
        parts = A, C, bases.V, bases.W, bases.inverse
        A, C, V, W, inverse = [x.expand(*batch, *x.shape[-2:]) for x in parts]
        B = B if B is None else B.expand(*batch, *B.shape[-2:])
        return sylvester.of_hermitian(A, B, C, Bases(V, W, inverse, bases.singular))

    return _scaled(solved, (C, A) if B is None else (C, A, B))


def _general(A: Tensor, B: Tensor, C: Tensor, operation: str) -> Tensor:
    """Solve AX + XB = C for square matrices."""

    def solved(C: Tensor, A: Tensor, B: Tensor) -> Tensor:
        T, U = solvers.schur(A.detach(), f"{operation}, A")
        S, W = solvers.schur(B.detach(), f"{operation}, B")
        batch = common_shape(*(x.shape[:-2] for x in (A, B, C)))
        A, B, C, T, U, S, W = (x.expand(*batch, *x.shape[-2:]) for x in (A, B, C, T, U, S, W))
        return sylvester.of_general(A, B, C, Schur(T, U, S, W), operation)

    return _scaled(solved, (C, A, B))


def _scaled(solved, given: tuple[Tensor, ...]) -> Tensor:  # type: ignore[no-untyped-def]
    """Return ``solved`` of C and the coefficients, in working precision and for matrices of any scale."""
    C, *others = given
    with full_precision(C):
        one = ((0, *[1] * len(others)), (-1,)), ((1, *[0] * len(others)), (1,))
        return narrow(homogeneous(solved, [widen(x) for x in given], *one), C.dtype)


def _check(A: Tensor, B: Tensor | None, C: Tensor, operation: str) -> None:
    check_square(A, f"{operation}, A")
    check_matrix(C, f"{operation}, C")
    if B is not None:
        check_square(B, f"{operation}, B")
    other = A if B is None else B
    fit = C.shape[-2:] == (A.shape[-1], other.shape[-1]) and A.dtype == other.dtype == C.dtype
    if not fit or not broadcast(A.shape[:-2], other.shape[:-2], C.shape[:-2]):
        given = f"{tuple(A.shape)}" + ("" if B is None else f", {tuple(B.shape)}") + f" and {tuple(C.shape)}"
        types = " and ".join(sorted({str(x.dtype) for x in (A, other, C)}))
        wanted = "A and C (*, d, d)" if B is None else "A (*, m, m), B (*, n, n) and C (*, m, n)"
        raise ShapeError(
            f"{operation}: expected {wanted} of the same dtype and batch dimensions that broadcast, got {given} "
            f"of {types}"
        )
    check_finite(C, f"{operation}, C")
