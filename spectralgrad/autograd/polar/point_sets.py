r"""The alignment of two sets of points, differentiated as a whole.

Derivation. Let :math:`X,Y` be centred with weights w (:math:`\sum_iw_ix_i=\sum_iw_iy_i=0`) and
:math:`C=\sum_iw_iy_ix_i^H`, :math:`R=\mathrm{polar}(C)`, :math:`s=\mathrm{Re}\langle R,C\rangle/a` with
:math:`a=\sum_iw_i\lVert x_i\rVert^2`, :math:`t=\bar y-sR\bar x`. The polar factor maximises
:math:`\mathrm{Re}\langle R,C\rangle`, so :math:`ds=(\mathrm{Re}\langle R,dC\rangle-s\,da)/a`, and the minimum e has the
derivative that it has at fixed R, s and t. With the cotangent :math:`\bar C` that R and s give to C,

.. math:: \bar x_i=w_i\bar C^Hy_i,\qquad \bar y_i=w_i\bar Cx_i,\qquad
          \bar w_i=\mathrm{Re}\langle y_i,\bar Cx_i\rangle .

Centring needs no correction, because these sum to zero; only t adds a constant to all points. The eager backward pass
uses these formulas. Everything else (transforms, compilers, second derivatives) differentiates :func:`composed`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ...dispatch import function
from ...dispatch.recomputation import recomputed
from ...precision import all_ordinary, full_precision, ldexp, magnitude, quotient, resolved
from ...solvers.kernel import point_sets
from ...solvers.kernel.point_sets import Fit
from .. import usual
from ..functions.rescaling import common_exponent, rescaled
from . import factor as polar_factor


class Options(NamedTuple):
    """Whether to fit a scale and a translation, and whether R must be a rotation."""

    scale: bool
    translation: bool
    special: bool


Results = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""R (*, k, k), t (*, k), s (*,), the residual (*,) and, without gradient, the margin (*,)."""


def align(X: Tensor, Y: Tensor, w: Tensor | None, options: Options) -> Results:
    """Align points X (*, n, k) with Y of the same shape, with weights (*, n), all in working precision."""
    given = (X, Y) if w is None else (X, Y, w)
    look = all_ordinary if function.eager(*given) else usual.ordinary
    if not (look(X) and look(Y) and (w is None or look(w, 1))):
        return _of_any_scale(given, options)
    if function.needs_no_gradient(*given):
        return _fit(X, Y, w, options)[:5]
    results: Results = function.apply(_Alignment, X, Y, w, options)
    return results


def _of_any_scale(given: tuple[Tensor, ...], options: Options) -> Results:
    """Align points of any scale: X and Y are divided by powers of two, and the results are scaled back.

    If a scale is fitted, X and Y are divided by different powers, and the fitted scale absorbs their ratio.
    """

    def call(X: Tensor, Y: Tensor, w: Tensor | None = None) -> Results:
        return composed(X, Y, w, options)

    X, Y, w = given[0], given[1], given[2] if len(given) == 3 else None
    a = b = common_exponent([(X, 1, 2), (Y, 1, 2)])
    if options.scale:
        own = common_exponent([(X, 1, 2)])
        near, _ = _centered(ldexp(X, -own[..., None, None]), w, options.translation)
        apart = _total(near, near, w) > 0  # where all points of X coincide, the scale is 1
        a, b = torch.where(apart, own, a), torch.where(apart, common_exponent([(Y, 1, 2)]), b)
    k = 0 * a if w is None else common_exponent([(w, 1, 1)])
    results: Results = rescaled(call, given, (a, b, k)[: len(given)], (0 * a, b, b - a, 2 * b + k, 0 * a))
    return results


def composed(X: Tensor, Y: Tensor, w: Tensor | None, options: Options) -> Results:
    """Return R, t, s, the residual and the margin, from differentiable operations of torch."""
    X, x = _centered(X, w, options.translation)
    Y, y = _centered(Y, w, options.translation)
    weighed = Y if w is None else Y * w.unsqueeze(-1)
    inner, outer = magnitude(X), magnitude(weighed)  # so that no square overflows or underflows
    C = (weighed / outer).mT @ (X / inner).conj()
    R, h = polar_factor.with_eigenvalues(C, -1.0, options.special, "procrustes")
    s = _ones(R)
    if options.scale:
        s = _scale(R, X / inner, weighed / outer, w, (outer / inner)[..., 0, 0])
    misses = s[..., None, None] * (X @ R.mT) - Y
    t = torch.zeros_like(R[..., 0]) if x is None or y is None else _translation(x, y, R, s)
    return R, t, s, _total(misses, misses, w), _margin(h, options.special and not R.dtype.is_complex)


def _ones(R: Tensor) -> Tensor:
    return R.real.new_ones(R.shape[:-2])


def _centered(P: Tensor, w: Tensor | None, translation: bool) -> tuple[Tensor, Tensor | None]:
    """The points relative to their weighted mean, and the mean (*, 1, k), or None without translation."""
    if not translation:
        return P, None
    center = point_sets.weighted_mean(P, w).unsqueeze(-2)
    return P - center, center


def _scale(R: Tensor, X: Tensor, weighed: Tensor, w: Tensor | None, unit: Tensor) -> Tensor:
    """The scale (*,) times ``unit``; 1 if all points of X coincide."""
    spread = _total(X, X, w)
    overlap = _total(X @ R.mT, weighed, None)
    return torch.where(spread > 0, quotient(overlap, spread, spread > 0) * unit, 1)


def _total(P: Tensor, Q: Tensor, w: Tensor | None) -> Tensor:
    """Σ wᵢ Re⟨pᵢ, qᵢ⟩ (*,)."""
    products = (P.conj() * Q).real
    return (products if w is None else products * w.unsqueeze(-1)).sum((-2, -1))


def _translation(x: Tensor, y: Tensor, R: Tensor, s: Tensor) -> Tensor:
    return (y - s[..., None, None] * (x @ R.mT)).squeeze(-2)


def _turned(R: Tensor, x: Tensor) -> Tensor:
    """R x (*, k); for small k a sum is faster than a product of matrices."""
    return (R * x.unsqueeze(-2)).sum(-1)


def _margin(h: Tensor, rotation: bool) -> Tensor:
    """How well R is determined (*,), relative to the norm: the sum of the last two eigenvalues, or the last one."""
    if h.shape[-1] == 0 or (rotation and h.shape[-1] == 1):
        return h.new_ones(h.shape[:-1])
    values = h.unbind(-1)  # the first is the largest
    return (values[-2] + values[-1] if rotation else values[-1]) / resolved(values[0])


def _fit(X: Tensor, Y: Tensor, w: Tensor | None, options: Options) -> Fit:
    """Return the fit without gradient, by the kernel where it is used."""
    found = point_sets.align(X, Y, w, options.translation, options.scale, options.special)
    if found is None:
        return _fit_by_torch(X, Y, w, options)
    fit, failed = found
    if not failed:
        return fit
    bad, batch = fit.h.isnan().any(-1), X.dim() - 2
    pairs = zip(fit, _fit_by_torch(X, Y, w, options), strict=True)
    return Fit(*(torch.where(bad.reshape(*bad.shape, *[1] * (a.dim() - batch)), b, a) for a, b in pairs))


def _fit_by_torch(X: Tensor, Y: Tensor, w: Tensor | None, options: Options) -> Fit:
    C, x, y = point_sets.cross_covariance(X, Y, w, options.translation)
    R, h, Vh = polar_factor.decompose(C, -1.0, options.special, "procrustes")
    s = spread = _ones(R)
    if options.scale:
        near = X - x.unsqueeze(-2)
        spread = _total(near, near, w)
        s = torch.where(spread > 0, quotient((R.conj() * C).real.sum((-2, -1)), spread, spread > 0), 1)
    turn = R * s[..., None, None] if options.scale else R
    t = y - _turned(turn, x) if options.translation else torch.zeros_like(y)
    residual = point_sets.distance(X, Y, w, x, y, turn)
    margin = _margin(h, options.special and not R.dtype.is_complex)
    return Fit(R, t, s, residual, margin, x, y, h, Vh, spread)


class _Alignment(function.ReverseRule):
    """The results, with the formulas above in the backward pass."""

    composed = staticmethod(composed)

    @staticmethod
    def forward(ctx, X, Y, w, options):  # type: ignore[no-untyped-def]
        ctx.options = options
        ctx.set_materialize_grads(False)
        R, t, s, e, margin, *kept = _fit(X, Y, w, options)
        ctx.assumed = not X.is_cpu and usual.moderate(kept[2], 1)
        ctx.mark_non_differentiable(margin)
        x, y, h, Vh, spread = kept
        ctx.save_for_backward(X, Y, w, x, y, R, h, Vh, s, spread if options.scale else None)
        return R, t, s, e, margin

    @staticmethod
    def backward(ctx, gR, gt, gs, ge, _):  # type: ignore[no-untyped-def]
        X, Y, w, *saved = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        with full_precision(X):
            if function.differentiating():
                again = partial(composed, options=ctx.options)
                return *recomputed(again, (X, Y, w), wanted, (gR, gt, gs, ge, None)), None
            gt = gt if ctx.options.translation else None  # otherwise t is constant
            found = _cotangents((X, Y, w), saved, gR, gt, gs, ge, ctx.assumed)
            return *(g if needed else None for g, needed in zip(found, wanted, strict=True)), None


Cotangents = tuple[Tensor | None, ...]


def _cotangents(
    inputs: Cotangents,
    saved: list[Tensor],
    gR: Tensor | None,
    gt: Tensor | None,
    gs: Tensor | None,
    ge: Tensor | None,
    known: bool,
) -> Cotangents:
    """The gradients of X, Y and w by the formulas of this module; ``known`` as in :func:`.factor.derivative`."""
    X, Y, w = inputs
    assert X is not None
    assert Y is not None
    x, y, R, h, Vh, s, spread = saved
    turn, pulls = (R if spread is None else R * s[..., None, None]), None
    if gt is not None:
        through = -(gt * s.unsqueeze(-1)).unsqueeze(-1) * x.unsqueeze(-2).conj()
        gR = through if gR is None else gR + through
        pulls = -_turned(turn.mH, gt), gt
        if spread is not None:
            gs = -(_turned(R, x).conj() * gt).real.sum(-1) + (0 if gs is None else gs)
    gC = torch.zeros_like(R) if gR is None else polar_factor.derivative(gR, h, Vh, R, known)
    if spread is None or gs is None:
        stretch = None
    else:
        stretch = quotient(gs, spread, spread > 0)
        gC = gC + stretch[..., None, None] * R
    given = [g for g in (X, Y, w, gC, gt) if g is not None]
    if stretch is None and ge is None and function.eager(*given, anywhere=True):  # not under vmap of this backward pass
        found = point_sets.point_gradients(X, Y, w, (x, y), gC, pulls)
        if found is not None:
            return found
    near = X - x.unsqueeze(-2), Y - y.unsqueeze(-2)
    return _spread_over_points(near, w, gC, turn, (stretch, s), ge, pulls)


def _spread_over_points(
    near: tuple[Tensor, Tensor],
    w: Tensor | None,
    gC: Tensor,
    turn: Tensor,
    scale: tuple[Tensor | None, Tensor],
    ge: Tensor | None,
    pulls: tuple[Tensor, Tensor] | None,
) -> Cotangents:
    """The gradients of centred points and weights, from the gradients of C, s (divided by a), e and the means."""
    X, Y = near
    gX, gY = Y @ gC.conj(), X @ gC.mT
    gw = (Y.conj() * gY).real.sum(-1)
    stretch, s = scale
    if stretch is not None:
        pull = stretch[..., None, None] * (s[..., None, None] * X)  # in the order that does not overflow
        gX, gw = gX - 2 * pull, gw - (X.conj() * pull).real.sum(-1)
    if ge is not None:
        misses = X @ turn.mT - Y
        push = 2 * ge[..., None, None] * misses
        gX, gY, gw = gX + push @ turn.conj(), gY - push, gw + (misses.conj() * push).real.sum(-1) / 2
    total = X.real.new_full((1,), X.shape[-2]) if w is None else w.sum(-1, keepdim=True)
    if pulls is not None:
        gx, gy = (quotient(g, total, total > 0).unsqueeze(-2) for g in pulls)
        gX, gY, gw = gX + gx, gY + gy, gw + (gx.conj() * X + gy.conj() * Y).real.sum(-1)
    return (gX, gY, None) if w is None else (gX * w.unsqueeze(-1), gY * w.unsqueeze(-1), gw)
