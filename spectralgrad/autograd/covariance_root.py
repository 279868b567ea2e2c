r"""The root of a covariance from its positions, forward and backward in as few products as it takes.

Derivation. With centred, scaled features :math:`X` (d, N), :math:`M=(X^HX)^{-1/2}` and :math:`S=XMX^H`, the
differential is :math:`dS=dX\,MX^H+X\,dM\,X^H+XM\,dX^H`. For a Hermitian cotangent :math:`G` and :math:`T=GX`

.. math:: \bar X=2\,(T M+X K),\qquad K=D[(\cdot)^{-1/2}](X^HX)\bigl[X^HT\bigr],

four products instead of the six that autograd makes of the three in S. S itself is :math:`BB^H` with
:math:`B=XVs^{-1/2}`, where :math:`M=Vs^{-1}V^H`: rounding in X M would be as large as M, which a steep spectrum makes
huge, while :math:`XV` is small where :math:`s` is.

S is homogeneous of degree one in X, and its gradient does not depend on the scale of X. Features so large or small
that their products or a power −3/2 would leave the type are divided by a power of two before they are multiplied.

Centred features have :math:`X\mathbf 1=0`: the N×N matrix has a null vector whose computed eigenvalue is rounding
noise, and its inverse root would blow rounding up. It is lifted to the mean eigenvalue. That changes M along
:math:`\mathbf 1` only, where X, its differential and its gradient have no part.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import solvers
from ..dispatch import function
from ..precision import full_precision, magnitude, ordinary, reciprocal, room
from ..solvers.symmetry import hermitian
from . import square_root
from .spectra import Domain


def root_from_positions(X: Tensor, center: bool, count: int, domain: Domain) -> Tensor:
    """The square root (*, d, d) of the covariance of features (*, d, N), in reverse mode only; N×N is decomposed.

    Args:
        X: features in working precision.
        center: subtract the mean over positions.
        count: what the sum over positions is divided by.
        domain: of the N×N matrix: the name in errors and the rank tolerance.
    """
    result: Tensor = _RootFromPositions.apply(X, center, count**-0.5, domain)
    return result


def products(X: Tensor, centered: bool) -> Tensor:
    """XᴴX, with the null vector of centred features lifted off zero."""
    A = X.mH @ X
    return lifted(A) if centered else A


def lifted(A: Tensor) -> Tensor:
    """The products of centred features with their null vector lifted to the mean eigenvalue."""
    if not A.numel():
        return A
    mean = A.detach().diagonal(dim1=-2, dim2=-1).real.mean(-1) / A.shape[-1]
    return A + mean[..., None, None]


def features(
    X: Tensor, center: bool, scale: float | Tensor, least: float = 0.0, steep: bool = False
) -> tuple[Tensor, Tensor]:
    """Features (*, d, N), centred and multiplied by ``scale``, and the power of two (*, 1, 1) they were divided by.

    The power is 1 for features of ordinary size, and never below ``least``, itself one of at most 1. If they meet a
    ``steep`` function, whose slope times the power may overflow, they are divided by no more than they have to be.
    """
    if function.eager(X):  # the usual case by a short way
        centered = X - X.mean(-1, keepdim=True) if center else X
        if bool(ordinary(centered).all()):
            return centered * scale, X.real.new_ones((*X.shape[:-2], 1, 1))
    size = magnitude(X).clamp_min(least)
    X = X / size  # exact
    if center:
        X = X - X.mean(-1, keepdim=True)
        again = torch.maximum(magnitude(X, size), least / size)  # a large mean may have hidden small features
        scale, size = scale / again, size * again
    if steep:
        scale, size = scale * room(size), size / room(size)
    return X * scale, size


class _RootFromPositions(torch.autograd.Function):
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
                gX -= gX.mean(-1, keepdim=True)
            return gX.mul_(2 * ctx.scale), None, None, None


def _sum_of_products(A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """AB + CD, the second product added to the first in place."""
    flat = [x.reshape(x.shape[:-2].numel(), *x.shape[-2:]) for x in (A, B, C, D)]
    return torch.bmm(flat[0], flat[1]).baddbmm_(flat[2], flat[3]).reshape(A.shape)


def _composed(X: Tensor, G: Tensor, center: bool, scale: float, domain: Domain) -> Tensor:
    """The gradient with a graph of its own, for derivatives of higher order."""
    with torch.enable_grad():
        prepared, _ = features(X, center, scale)
        S = prepared @ square_root.exact_root(products(prepared, center), True, domain) @ prepared.mH
        # By the prepared features: on the way to X and back the power of two cancels.
        (gX,) = torch.autograd.grad(S, prepared, hermitian(G), create_graph=True)
        return (gX - gX.mean(-1, keepdim=True) if center else gX) * scale
