r"""The smallest deviation of two point sets, whose derivative needs no derivative of the rotation.

Derivation. :math:`e=\min_{R,t,s}\sum_iw_i\lVert m_i\rVert^2` with :math:`m_i=sRx_i+t-y_i`. At the minimum the
derivatives in R, t and s vanish, so e has the derivative that it has at fixed R, t and s (the envelope theorem):

.. math:: \bar x_i=2\bar e\,w_i\,s\,R^Hm_i,\qquad\bar y_i=-2\bar e\,w_im_i,\qquad\bar w_i=\bar e\,\lVert m_i\rVert^2 .

It is exact where R is not determined as well: there it is the derivative at one of the minimisers. Only second
derivatives differentiate R. In memory, points are columns here: with few coordinates, products and means are two to
four times as fast as with rows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...dispatch import function
from ...precision import full_precision, mean, quotient
from . import factor as polar_factor
from .point_sets import Options, composed

Gradients = tuple[Tensor, Tensor, Tensor | None]


class _Turned(NamedTuple):
    """A fit without gradient: the misses m (*, k, n), and s·R (*, k, k)."""

    misses: Tensor
    turn: Tensor


def deviation(X: Tensor, Y: Tensor, w: Tensor | None, options: Options, operation: str) -> Tensor:
    """Return the minimum e (*,) for points X and Y (*, n, k) and weights (*, n), all of ordinary size."""
    e: Tensor = function.apply(_Deviation, X, Y, w, options, operation)[0]
    return e


class _Deviation(function.DerivativeRule):
    """The minimum, and what its first derivatives need."""

    results = "e misses turn"
    non_differentiable = "misses turn"
    keeps = "X Y w misses turn options"
    materialize_grads = False

    @staticmethod
    def forward(
        X: Tensor, Y: Tensor, w: Tensor | None, options: Options, operation: str
    ) -> tuple[Tensor, Tensor, Tensor]:
        misses, turn = _fit(X, Y, w, options, operation)
        return _total(misses, misses, w), misses, turn

    @staticmethod
    def backward(ctx, ge, *_):  # type: ignore[no-untyped-def]
        if ge is None:
            return None, None, None, None, None
        X, Y, w, misses, turn = ctx.saved_tensors
        with full_precision(X):
            if function.differentiating():
                misses, turn = _differentiable(X, Y, w, ctx.options)
            return *_gradients(ge, w, misses, turn), None, None

    @staticmethod
    def jvp(ctx, dX, dY, dw, *_):  # type: ignore[no-untyped-def]
        X, Y, w = ctx.saved_tensors[:3]
        with full_precision(X):
            gX, gY, gw = _gradients(X.real.new_ones(()), w, *_differentiable(X, Y, w, ctx.options))
            parts = [(g.conj() * d).real.sum((-2, -1)) for g, d in ((gX, dX), (gY, dY)) if d is not None]
            if dw is not None and gw is not None:
                parts.append((gw * dw).sum(-1))
            return sum(parts), None, None


def _fit(X: Tensor, Y: Tensor, w: Tensor | None, options: Options, operation: str) -> _Turned:
    near, far = (_relative(P, w, options) for P in (X, Y))
    weighed = far if w is None else far * w.unsqueeze(-2)
    C = weighed @ near.mH
    turn, _, _ = polar_factor.decompose(C, -1.0, options.special, operation)
    if options.scale:
        spread, overlap = _total(near, near, w), (turn.conj() * C).real.sum((-2, -1))
        turn = torch.where(spread > 0, quotient(overlap, spread, spread > 0), 1)[..., None, None] * turn
    return _Turned((turn @ near).sub_(far), turn)


def _differentiable(X: Tensor, Y: Tensor, w: Tensor | None, options: Options) -> _Turned:
    """The fit as a function of points and weights, for derivatives of higher order."""
    R, _, s, *_ = composed(X, Y, w, options)
    near, far = (_relative(P, w, options) for P in (X, Y))
    turn = R * s[..., None, None]
    return _Turned((turn @ near).sub_(far), turn)


def _gradients(ge: Tensor, w: Tensor | None, misses: Tensor, turn: Tensor) -> Gradients:
    size = 2 * ge[..., None, None] if w is None else 2 * ge[..., None, None] * w.unsqueeze(-2)
    gw = None if w is None else ge.unsqueeze(-1) * (misses.conj() * misses).real.sum(-2)
    push = -size * misses
    return (-turn.mH @ push).mT, push.mT, gw


def _relative(P: Tensor, w: Tensor | None, options: Options) -> Tensor:
    """The points (*, n, k) relative to their weighted mean, as columns (*, k, n)."""
    P = P.mT.clone(memory_format=torch.contiguous_format)
    if not options.translation:
        return P
    if w is None:
        return P.sub_(mean(P))
    total = w.sum(-1, keepdim=True)
    return P - (quotient(w, total, total > 0).unsqueeze(-2) * P).sum(-1, keepdim=True)


def _total(P: Tensor, Q: Tensor, w: Tensor | None) -> Tensor:
    """Σ wᵢ Re⟨pᵢ, qᵢ⟩ (*,) of columns."""
    products = (P.conj() * Q).real
    return (products if w is None else products * w.unsqueeze(-2)).sum((-2, -1))
