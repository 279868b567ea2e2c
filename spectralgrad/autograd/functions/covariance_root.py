r"""The square root of a covariance from the N×N matrix of its positions, with few products forward and backward.

Derivation. With centred, scaled features :math:`X` (d, N), :math:`M=(X^HX)^{-1/2}` and :math:`S=XMX^H`, the
differential is :math:`dS=dX\,MX^H+X\,dM\,X^H+XM\,dX^H`. For a Hermitian cotangent :math:`G` and :math:`T=GX`

.. math:: \bar X=2\,(T M+X K),\qquad K=D[(\cdot)^{-1/2}](X^HX)\bigl[X^HT\bigr],

four products instead of the six that autograd would use. S itself is computed as :math:`BB^H` with
:math:`B=XVs^{-1/2}`, where :math:`M=Vs^{-1}V^H`: the rounding error of X M is proportional to M, which is huge if the
spectrum is steep, whereas :math:`XV` is small where :math:`s` is.

S is homogeneous of degree one in X, and its gradient does not depend on the scale of X. Features so large or small
that their products, or the power −3/2 of these, would overflow or underflow are first divided by a power of two.

Centred features satisfy :math:`X\mathbf 1=0`, so the N×N matrix has a null vector. Its computed eigenvalue is rounding
error, which the inverse root would amplify, so it is raised to the mean eigenvalue. This changes M only along
:math:`\mathbf 1`, where X, its differential and its gradient vanish.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function, status
from ...precision import all_ordinary, full_precision, magnitude, mean, reciprocal, room
from ...solvers.symmetry import hermitian
from .. import usual
from . import square_root
from .domain import Domain


def root_from_positions(X: Tensor, center: bool, count: int, domain: Domain) -> Tensor:
    """Return the square root (*, d, d) of the covariance of features (*, d, N) by decomposing an N×N matrix.

    Supports reverse mode only.

    Args:
        X: features in working precision.
        center: subtract the mean over positions.
        count: the divisor of the sum over positions.
        domain: name used in error messages, and relative rank tolerance of the N×N matrix.
    """
    result: Tensor = _RootFromPositions.run(X, center, count**-0.5, domain)
    return result


def products(X: Tensor, centered: bool) -> Tensor:
    """Return XᴴX; for centred features, with the eigenvalue of their null vector raised (see :func:`lifted`)."""
    A = X.mH @ X
    return lifted(A) if centered else A


def lifted(A: Tensor) -> Tensor:
    """Raise the eigenvalue of the null vector (1, …, 1) of centred features to the mean eigenvalue."""
    if not A.numel():
        return A
    mean = A.detach().diagonal(dim1=-2, dim2=-1).real.mean(-1) / A.shape[-1]
    return A + mean[..., None, None]


def features(
    X: Tensor, center: bool, scale: float | Tensor, least: float = 0, steep: bool = False
) -> tuple[Tensor, Tensor]:
    """Return features (*, d, N), centred and multiplied by ``scale``, and the power of two (*, 1, 1) that divides them.

    Args:
        X: features (*, d, N).
        center: subtract the mean over positions.
        scale: constant factor.
        least: lower limit of the power, itself a power of two of at most 1. The power is 1 for ordinary features.
        steep: divide by no more than necessary, for a function whose slope times the power may overflow.
    """
    if function.eager(X) or (not X.is_cpu and status.assumed(X)):  # a short path for the common case
        centered = X - mean(X) if center else X
        if all_ordinary(centered) if function.eager(X) else usual.ordinary(centered):
            return centered * scale, X.real.new_ones((*X.shape[:-2], 1, 1))
    size = magnitude(X).clamp_min(least)
    # Exact, because it is a power of two. A quotient of complex numbers may underflow in torch 2.6.
    X = X * size.reciprocal() if X.dtype.is_complex else X / size
    if center:
        X = X - mean(X)
        again = torch.maximum(magnitude(X, size), least / size)  # centring may leave features much smaller than before
        scale, size = scale / again, size * again
    if steep:
        scale, size = scale * room(size), size / room(size)
    return X * scale, size


class _RootFromPositions(function.ReverseRule):
    @staticmethod
    def forward(ctx, X, center, scale, domain):  # type: ignore[no-untyped-def]
        ctx.center, ctx.scale, ctx.domain = center, scale, domain
        prepared, size = features(X, center, scale)
        M, s, V = square_root.root_and_eigenpairs(products(prepared, center), True, domain)
        ctx.save_for_backward(X, prepared, M, s, V)
        B = prepared @ V * reciprocal(s, s > 0).sqrt().unsqueeze(-2)
        usual = function.eager(size) and bool((size == 1).all())
        return B @ (B if usual else B * size).mH

    @staticmethod
    def backward(ctx, G):  # type: ignore[no-untyped-def]
        X, prepared, M, s, V = ctx.saved_tensors
        with full_precision(X):
            if function.differentiating():
                return _composed(X, G, ctx.center, ctx.scale, ctx.domain), None, None, None
            T = hermitian(G) @ prepared
            K = solvers.root_derivative(V, s, prepared.mH @ T, True)
            gX = _sum_of_products(T, M, prepared, K)
            if ctx.center:
                gX -= mean(gX)
            return gX.mul_(2 * ctx.scale), None, None, None


def _sum_of_products(A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """Return AB + CD, with the second product added to the first in place."""
    flat = [x.reshape(x.shape[:-2].numel(), *x.shape[-2:]) for x in (A, B, C, D)]
    return torch.bmm(flat[0], flat[1]).baddbmm_(flat[2], flat[3]).reshape(A.shape)


def _composed(X: Tensor, G: Tensor, center: bool, scale: float, domain: Domain) -> Tensor:
    """Return the gradient with a graph, for derivatives of higher order."""
    with torch.enable_grad():
        prepared, _ = features(X, center, scale)
        S = prepared @ square_root.exact_root(products(prepared, center), True, domain) @ prepared.mH
        # Differentiated with respect to the prepared features: the power of two would cancel on the way to X and back.
        (gX,) = torch.autograd.grad(S, prepared, hermitian(G), create_graph=True)
        return (gX - mean(gX) if center else gX) * scale
