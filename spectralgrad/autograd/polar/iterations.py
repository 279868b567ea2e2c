"""The polar factor by odd polynomials: iterations that consist of matrix products, differentiated step by step."""

from __future__ import annotations

from torch import Tensor

from ...dispatch import function
from ...dispatch.custom_operators import current
from ...precision import reciprocal
from ..iterations.newton_schulz import magnitude_and_norm

Quintic = tuple[float, float, float]


def composed_quintics(M: Tensor, quintics: tuple[Quintic, ...], margin: float = 1) -> Tensor:
    r"""Approximate the polar factor of matrices (*, m, n) by :math:`p_T(\cdots p_1(M/(c\lVert M\rVert_F)))`.

    A step with the coefficients (a, b, c) is :math:`X\leftarrow aX+bX(X^HX)+cX(X^HX)^2`, which applies
    :math:`p(\sigma)=a\sigma+b\sigma^3+c\sigma^5` to the singular values. A zero matrix remains zero.

    Args:
        M: matrices (*, m, n); NaN and Inf raise :class:`NonFiniteError`.
        quintics: the coefficients of each step.
        margin: c, by how much the Frobenius norm is raised.
    """
    if M.shape[-2] < M.shape[-1]:
        return composed_quintics(M.mH, quintics, margin).mH
    if not function.exporting():
        M = function.apply(_Finite, M)
    size, rest = magnitude_and_norm(M)  # two factors, so that neither the norm nor its derivative overflows
    X = M / size * reciprocal(margin * rest, rest > 0)
    for a, b, c in quintics:
        A = X.mH @ X
        X = a * X + X @ (b * A + c * (A @ A))
    return X


class _Finite(function.DerivativeRule):
    """The identity, after a check."""

    @staticmethod
    def forward(M: Tensor) -> Tensor:
        return current("checked_finite")(M, "polar")

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        return g

    @staticmethod
    def jvp(ctx, dM):  # type: ignore[no-untyped-def]
        return dM.clone()
