r"""Least squares of minimum norm, with or without damping, for matrices of any shape and rank.

Derivation. :math:`X=M^+B` minimises :math:`\|MX-B\|^2`, and among the minimisers :math:`\|X\|^2`. Within the matrices
of the same rank (Golub and Pereyra),

.. math:: dM^+=-M^+dM\,M^++M^+M^{+H}dM^H(I-MM^+)+(I-M^+M)\,dM^HM^{+H}M^+ .

Damping by δ is least squares with :math:`(M;\delta I)` and :math:`(B;0)`, which have full rank for δ > 0. Both are
functions of the singular values on the support, those that are not cut off: with :math:`g=1/(\sigma^2+\delta^2)`,
:math:`C=U^HB` and :math:`H=V^H\bar X`,

.. math:: X=V\,\mathrm{diag}(\sigma g)\,C,\qquad \bar B=U\,\mathrm{diag}(\sigma g)\,H,\qquad
          \bar\delta=-2\delta\,\mathrm{Re}\,\mathrm{tr}(Z^HX),\qquad Z=V\,\mathrm{diag}(g)\,H,

.. math:: \bar M=(B-MX)\,Z^H-\bar B\,X^H+U\,\mathrm{diag}(g)\,C\,(\bar X-VH)^H .

There are no gaps, so the gradient is exact at equal singular values. The residual is composed of what U leaves out of
B and of :math:`U\delta^2gC`: a difference :math:`B-MX` would multiply the rounding errors of X by the norm of M.

Higher derivatives and forward mode use :math:`(M;\delta I)^+(B;0)` itself.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...dispatch import function
from ...dispatch.recomputation import recomputed
from ...precision import full_precision, reciprocal, saturated
from ..pairwise import norm
from . import weights as singular_weights
from .functions import Triplets, compose, decomposed


class Support(NamedTuple):
    """Which singular values count.

    Attributes:
        chosen: the mask (*, k).
        threshold: the singular value (*, 1) above which they do, in any case.
        damped: the mask (*, 1) of matrices whose damping exceeds the threshold: there all of them count.
    """

    chosen: Tensor
    threshold: Tensor
    damped: Tensor | None


def pseudo_inverse(M: Tensor, triplets: Triplets, chosen: Tensor) -> Tensor:
    """Return the pseudo-inverse (*, n, m) of M = U S Vᴴ, restricted to the ``chosen`` singular values (*, k)."""
    return compose(M, triplets, singular_weights.inverse(triplets.S, chosen)).mH


def support(S: Tensor, rtol: float, damping: Tensor | None) -> Support:
    """Return which singular values count: those above ``rtol`` times the largest, all where the damping (*, 1) is."""
    threshold = rtol * norm(S).unsqueeze(-1)
    above = threshold < S
    if damping is None:
        return Support(above, threshold, None)
    damped = threshold < damping.detach().abs()
    return Support(above | damped, threshold, damped)


def solve(M: Tensor, B: Tensor, damping: Tensor | None, triplets: Triplets, kept: Support) -> tuple[Tensor, Tensor]:
    """Return X (*, n, r), differentiable in M (*, m, n), B (*, m, r) and the damping (*, 1, 1), and B − MX.

    All batch dimensions are equal; ``triplets`` are the singular value decomposition of M. B − MX has no gradient.
    """
    result: tuple[Tensor, Tensor] = function.apply(_LeastSquares, M, B, damping, *triplets, *kept)
    return result


def _composed(
    M: Tensor, B: Tensor, damping: Tensor | None, U: Tensor, S: Tensor, Vh: Tensor, *kept: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the same by the pseudo-inverse, which has derivatives of any kind."""
    chosen, threshold, damped = Support(*kept)  # type: ignore[arg-type]
    triplets = Triplets(U, S, Vh)
    if damping is None or damped is None:
        found = pseudo_inverse(M, triplets, chosen) @ B
    else:
        level = torch.hypot(threshold, torch.where(damped, 0, damping.detach().squeeze(-1)))
        extended = torch.cat([M, damping * torch.eye(M.shape[-1], dtype=M.dtype, device=M.device)], -2)
        factors = decomposed(extended, "lstsq")
        found = pseudo_inverse(extended, factors, level < factors.S)[..., : M.shape[-2]] @ B
    with torch.no_grad():
        rest = _solved(B.detach(), None if damping is None else damping.detach(), triplets, chosen)[1]
    return found, rest


def _solved(
    B: Tensor, damping: Tensor | None, triplets: Triplets, chosen: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return X, B − MX, σg and g (*, 1, k), and Cᴴ.

    Products with thin B are taken of the conjugate transposes, which takes torch a quarter of the time.
    """
    U, S, Vh = triplets
    inverse = reciprocal(S if damping is None else torch.hypot(S, damping.squeeze(-1).expand_as(S)), chosen)
    f, g = (S * inverse * inverse).unsqueeze(-2), saturated(inverse.square()).unsqueeze(-2)
    Ch = B.mH @ U
    return ((f * Ch) @ Vh).mH, B - ((f * S.unsqueeze(-2) * Ch) @ U.mH).mH, f, g, Ch


class _LeastSquares(function.ReverseRule):
    composed = staticmethod(_composed)

    @staticmethod
    def forward(ctx, M, B, damping, U, S, Vh, chosen, *rest):  # type: ignore[no-untyped-def]
        with full_precision(U):
            X, R, *parts = _solved(B, damping, Triplets(U, S, Vh), chosen)
        ctx.save_for_backward(M, B, damping, U, S, Vh, chosen, *rest, *parts, X, R)
        ctx.mark_non_differentiable(R)
        return X, R

    @staticmethod
    def backward(ctx, gX, _):  # type: ignore[no-untyped-def]
        M, B, damping, *parts = ctx.saved_tensors
        needed = ctx.needs_input_grad[:3]
        with full_precision(M):
            if function.differentiating():

                def again(*inputs: Tensor) -> tuple[Tensor]:
                    return _composed(*inputs, *parts[:6])[:1]

                return *recomputed(again, (M, B, damping), needed, (gX,)), *[None] * 6
            return *_gradients(gX, damping, parts, needed[0]), *[None] * 6


def _gradients(
    gX: Tensor, damping: Tensor | None, parts: list[Tensor], of_matrix: bool
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """Return the gradients in M, unless it needs none, in B and in the damping."""
    U, _, Vh, chosen, *_, f, g, Ch, X, R = parts
    Hh = gX.mH @ Vh.mH
    gBh, other = (torch.cat([f * Hh, g * Ch], -2) @ U.mH).chunk(2, -2)
    Zh, inside = (torch.cat([g * Hh, chosen.unsqueeze(-2) * Hh], -2) @ Vh).chunk(2, -2)
    gd = None if damping is None else -2 * damping * (Zh * X.mT).sum((-2, -1), keepdim=True).real
    if not of_matrix:
        return None, gBh.mH, gd
    rows = torch.cat([R.mH, -gBh, other], -2)
    return rows.mH @ torch.cat([Zh, X.mH, gX.mH - inside], -2), gBh.mH, gd
