"""Lyapunov equations with positive semi-definite coefficients, from the eigenpairs of the coefficient."""

from __future__ import annotations

import torch
from torch import Tensor

from ..autograd.functions import square_root
from ..autograd.functions.domain import Domain
from ..autograd.functions.rescaling import homogeneous
from ..autograd.iterations.newton_schulz import LyapunovResult
from ..dispatch.finite import check_finite
from ..dispatch.overrides import overridable
from ..errors import check_pair, common_shape
from ..precision import full_precision, narrow, reciprocal, widen
from ..solvers.symmetry import hermitian


@overridable
def lyapunov(S: Tensor, G: Tensor, *, rtol: float | None = None, clamp: bool = False) -> LyapunovResult:
    r"""Solve :math:`SX+XS=G` for positive definite S, with exact derivatives of any order in S and G.

    .. math:: X=V\Bigl(\frac{(V^HGV)_{ij}}{\lambda_i+\lambda_j}\Bigr)V^H,\qquad
              \bar G=H,\quad \bar S=-HX^H-X^HH,\quad SH+HS=\bar X .

    There are no eigenvalue gaps in it, so derivatives are exact for equal eigenvalues. For a singular S the equation is
    solved outside its null space: X and the part of G that is used are zero within it, and the derivative is that
    within the matrices of the same rank. The residual then shows how much of G was left out.

    Args:
        S: positive semi-definite matrices (*, d, d), real or complex.
        G: right-hand sides (*, d, d) of the same dtype, Hermitian or not; batch dimensions broadcast.
        rtol, clamp: as in :func:`matrix_sqrt`.

    Returns:
        named tuple ``(solution, residual)``: X (*, d, d), and :math:`\|SX+XS-G\|/\|G\|` (*,), without gradient.

    Raises:
        ShapeError: the matrices are not square or do not fit.
        AsymmetricError, IndefiniteError, NonFiniteError: as in :func:`matrix_sqrt`, for S; G must be finite.

    Example:
        >>> X, residual = lyapunov(torch.diag(torch.tensor([1.0, 3.0])), torch.ones(2, 2))
        >>> X
        tensor([[0.5000, 0.2500],
                [0.2500, 0.1667]])

    Reference: Bhatia and Rosenthal, How and why to solve the operator equation AX − XB = Y (1997);
    :mod:`spectralgrad.autograd.functions.square_root`. The papers' iteration by matrix products is
    :class:`spectralgrad.NewtonSchulz` with ``backward="lyapunov"``.
    """
    check_pair(S, G, "lyapunov", ("S", "G"))
    domain = Domain.of(S, "lyapunov", rtol, clamp)
    check_finite(G, "lyapunov, G")
    with full_precision(S):
        degrees = ((1, 0), (-1, 0)), ((0, 1), (1, 0))
        X, residual = homogeneous(lambda S, G: _solve(S, G, domain), (widen(S), widen(G)), *degrees)
        return LyapunovResult(narrow(X, S.dtype), narrow(residual, S.dtype))


def _solve(S: Tensor, G: Tensor, domain: Domain) -> tuple[Tensor, Tensor]:
    w, V, support = domain.spectrum(S)
    batch = common_shape(S.shape[:-2], G.shape[:-2])
    S, G, V = (x.expand(*batch, *x.shape[-2:]) for x in (hermitian(S), G, V))
    values = torch.where(support, w, 0).expand(*batch, w.shape[-1])
    X = square_root.solve_lyapunov(S, G, values, V)
    with torch.no_grad():
        size = torch.linalg.matrix_norm(G)
        return X, (torch.linalg.matrix_norm(S @ X + X @ S - G) * reciprocal(size, size > 0)).detach()
