r"""The squared distance between two factors up to a rotation: the squared Bures–Wasserstein distance.

Derivation. For factors X (m, d) and Y (n, d) of :math:`A=X^HX` and :math:`B=Y^HY`

.. math:: \mathrm{tr}A+\mathrm{tr}B-2\,\mathrm{tr}(A^{1/2}BA^{1/2})^{1/2}
          =\|X\|^2+\|Y\|^2-2\|XY^H\|_*
          =\|X-QY\|^2+\|Y-Q^HQY\|^2 ,

with the partial isometry Q of :math:`XY^H`. Only the last form does not cancel: it is not negative, and for nearly
equal factors its root has the error of the factors and not the root of that error. Q maximises
:math:`\mathrm{Re}\langle Q,XY^H\rangle`, so to first order only the explicit X and Y move:

.. math:: \bar X=2(X-QY),\qquad \bar Y=2(Y-Q^HX) .

There is no gap and no inverse. Where singular values of :math:`XY^H` vanish, the distance has no gradient; this choice
leaves their vectors out, which is the derivative within the products of the same rank.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...dispatch import function
from ...precision import full_precision
from .range_factors import PolarFactors, isometry, polar_on_range


def squared_distance(X: Tensor, Y: Tensor, operation: str) -> Tensor:
    """Return the squared distance (*,) of factors (*, m, d) and (*, n, d) with equal batch dimensions.

    Use double precision: the singular values of the product are squares, and their vectors are needed for the gradient.

    Args:
        X: factors of the first matrices.
        Y: factors of the second matrices.
        operation: name used in error messages.
    """
    result: tuple[Tensor, ...] = function.apply(_Procrustes, *((X, Y) if _tall(X, Y) else (Y, X)), operation)
    return result[0]


def _tall(X: Tensor, Y: Tensor) -> bool:
    return X.shape[-2] >= Y.shape[-2]


def _squares(X: Tensor) -> Tensor:
    return torch.linalg.vector_norm(X, dim=(-2, -1)).square()


class _Procrustes(function.DerivativeRule):
    results = "square Q S Vh"
    non_differentiable = "Q S Vh"
    keeps = "X Y Q S Vh"
    materialize_grads = False

    @staticmethod
    def forward(X: Tensor, Y: Tensor, operation: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        factors = polar_on_range(X @ Y.mH, operation)
        Q = factors.isometry
        turned = Q @ Y
        return _squares(X - turned) + _squares(Y - Q.mH @ turned), *factors

    @staticmethod
    def backward(ctx, g, *_):  # type: ignore[no-untyped-def]
        if g is None:
            return None, None, None
        gX, gY = _gradients(*ctx.saved_tensors, composed=function.differentiating())
        g = g[..., None, None]
        return g * gX, g * gY, None

    @staticmethod
    def jvp(ctx, dX, dY, _):  # type: ignore[no-untyped-def]
        moved = zip(_gradients(*ctx.saved_tensors, composed=True), (dX, dY), strict=True)
        parts = [(g.conj() * d).real.sum((-2, -1)) for g, d in moved if d is not None]
        return sum(parts), None, None, None


def _gradients(X: Tensor, Y: Tensor, Q: Tensor, S: Tensor, Vh: Tensor, *, composed: bool) -> tuple[Tensor, Tensor]:
    """Return the gradients; ``composed`` of differentiable operations, for derivatives of higher order."""
    with full_precision(X):
        if composed:
            Q = isometry(X @ Y.mH, PolarFactors(Q, S, Vh))
        return 2 * (X - Q @ Y), 2 * (Y - Q.mH @ X)
