r"""The orthogonal polar factor: the nearest matrix with orthonormal columns (or rows).

Derivation. :math:`M=QH` with :math:`H=(M^HM)^{1/2}` and :math:`Q^HQ=I`. Writing
:math:`dQ=Q\Omega+(I-QQ^H)dM\,H^{-1}` with skew :math:`\Omega`, the skew part of :math:`Q^HdM=\Omega H+dH`
gives :math:`H\Omega+\Omega H=Q^HdM-dM^HQ`, a Lyapunov equation in H. Its weights are
:math:`1/(\sigma_i+\sigma_j)`, so the derivative exists at equal singular values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import solvers
from ..autograd import frechet_derivative
from ..autograd.divided_differences import integer_power, on_range
from ..autograd.pairwise import norm
from ..autograd.square_root import solve_lyapunov
from ..dispatch import function
from ..dispatch.overrides import overridable
from ..errors import check_matrix, check_tolerance
from ..precision import full_precision, narrow, rank_tolerance, reciprocal, widen
from ..solvers.symmetry import hermitian


@overridable
def polar(M: Tensor, *, rtol: float | None = None) -> Tensor:
    r"""Compute the orthogonal polar factor :math:`UV^H` of :math:`M=U\Sigma V^H`, for any shape.

    It is the matrix with orthonormal columns (m ≥ n) or rows (m ≤ n) nearest to M in every unitarily
    invariant norm. First and second derivatives are exact, also at equal singular values. The factor is not unique
    where singular values vanish; those below ``rtol`` times the largest contribute no gradient, so it is finite
    for rank-deficient matrices.

    Args:
        M: matrices (*, m, n), real or complex; half types are computed in float32.
        rtol: relative rank tolerance; default :math:`\epsilon\max(8,3\sqrt{\max(m,n)})`.

    Returns:
        the polar factor (*, m, n).

    Raises:
        NonFiniteError: the input contains NaN or Inf.

    Example:
        >>> polar(torch.tensor([[0.0, -2.0], [3.0, 0.0]]))
        tensor([[ 0., -1.],
                [ 1.,  0.]])

    Reference: Higham, Functions of Matrices (2008), chapter 8; ECCV 2022, Eq. 17.
    """
    check_matrix(M, "polar")
    check_tolerance(rtol, "polar")
    with full_precision(M):
        A = widen(M)
        Q = _tall(A.mH, rtol).mH if A.shape[-2] < A.shape[-1] else _tall(A, rtol)
        return narrow(Q, M.dtype)


def _tall(A: Tensor, rtol: float | None) -> Tensor:
    """The polar factor of matrices (*, m, n) with m ≥ n in working precision."""
    if function.needs_no_gradient(A):
        return solvers.polar_factors(A)[0]
    tolerance = rank_tolerance(A.shape[-2], A.dtype) if rtol is None else rtol
    result: Tensor = function.apply(_Polar, A, tolerance)[0]
    return result


class _Polar(function.DerivativeRule):
    @staticmethod
    def forward(M: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
        Q, S, Vh = solvers.polar_factors(M)
        return Q, torch.where(S > tolerance * norm(S).unsqueeze(-1), S, 0), Vh

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        Q, S, Vh = output
        ctx.mark_non_differentiable(S, Vh)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0], S, Vh, Q)
        ctx.save_for_forward(inputs[0], S, Vh, Q)

    @staticmethod
    def backward(ctx, gQ, *_):  # type: ignore[no-untyped-def]
        return (None if gQ is None else _derivative(gQ, *ctx.saved_tensors)), None

    @staticmethod
    def jvp(ctx, dM, *_):  # type: ignore[no-untyped-def]
        return _derivative(dM, *ctx.saved_tensors, forward=True), None, None


def _derivative(G: Tensor, M: Tensor, S: Tensor, Vh: Tensor, Q: Tensor, *, forward: bool = False) -> Tensor:
    """Compute the derivative of M ↦ Q in the direction G; it is self-adjoint, so both modes use it."""
    with full_precision(Q):
        if function.differentiating() or forward:
            return _composed(M, S, Vh, Q, G)
        QG = Q.mH @ G
        inner = Vh @ (QG - QG.mH) @ Vh.mH
        rotation = Q @ (Vh.mH @ (solvers.inverse_sums(S) * inner) @ Vh)
        if Q.shape[-2] == Q.shape[-1]:
            return rotation
        return rotation + (G - Q @ QG) @ ((Vh.mH * reciprocal(S, S > 0).unsqueeze(-2)) @ Vh)


def _composed(M: Tensor, S: Tensor, Vh: Tensor, Q: Tensor, G: Tensor) -> Tensor:
    """Compute the same from differentiable operations, for derivatives of higher order."""
    H = hermitian(Q.mH @ M)
    W = Q.mH @ G
    rotation = Q @ solve_lyapunov(H, W - W.mH, S, Vh.mH)
    if Q.shape[-2] == Q.shape[-1]:
        return rotation
    return rotation + (G - Q @ W) @ _inverse(H, S, Vh.mH)


def _inverse(H: Tensor, S: Tensor, V: Tensor) -> Tensor:
    """The pseudo-inverse of H = V diag(S) Vᴴ, differentiable in ``H``."""
    values, gamma, curvature = on_range(lambda w: integer_power(w, -1), S, S > 0)
    return frechet_derivative.exact(H, S, V, values, gamma, curvature)
