"""The alignment of points in one call of the kernel or a few of Triton's, and its gradient in another one.

Points are (*, n, k), weights (*, n) or None for ones, means (*, k).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from ...native import Kernel, kernel
from ...native.functions import in_memory
from ...precision import quotient, rank_tolerance
from .. import devices
from ..call_counts import counts
from ..decompose import choice
from ..devices import plans

_COORDINATES = 16  # the most that the kernel takes


class Fit(NamedTuple):
    """How points X are mapped to points Y: the results, and what their gradient needs.

    Attributes:
        R, t, s: polar factor (*, k, k), translation (*, k) and scale (*,).
        residual, margin: the minimum (*,), and how well R is determined (*,).
        x, y: the means (*, k); zero without translation.
        h, Vh: the cross-covariance is R V diag(h) Vh.
        spread: Σ w‖x‖² (*,) of centred points; it means nothing if no scale is fitted.
    """

    R: Tensor
    t: Tensor
    s: Tensor
    residual: Tensor
    margin: Tensor
    x: Tensor
    y: Tensor
    h: Tensor
    Vh: Tensor
    spread: Tensor


def _kernel(X: Tensor) -> Kernel | None:
    native = kernel()
    return native if native is not None and native.takes(X) and X.numel() and X.shape[-1] <= _COORDINATES else None


def align(
    X: Tensor, Y: Tensor, w: Tensor | None, translation: bool, scale: bool, special: bool
) -> tuple[Fit, int] | None:
    """Return the fit and the number of failures, whose results are NaN; None if the kernel is not used."""
    if _kernel(X) is None:
        return None
    C = X.new_empty(*X.shape[:-2], X.shape[-1], X.shape[-1])
    plan = choice.singular(C, "align")
    if plan is None:
        return None
    points = in_memory(X), in_memory(Y), None if w is None else in_memory(w)
    found, failed = plan.align(C, *points, translation, scale, special, rank_tolerance(X.shape[-1], X.dtype))
    counts.call(plan.batch - failed)
    return Fit(*found), failed


def _by_triton(X: Tensor, Y: Tensor, *others: Tensor | None) -> bool:
    return not X.is_cpu and X.shape == Y.shape and plans.points(X, Y, *others)


def _stored(*tensors: Tensor | None) -> list[Any]:
    return [None if x is None else in_memory(x) for x in tensors]


def cross_covariance(X: Tensor, Y: Tensor, w: Tensor | None, center: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return C = Σ w (y − ȳ)(x − x̄)ᴴ (*, k, k), x̄ and ȳ (*, k); the means are zero unless the points are centred."""
    if _by_triton(X, Y, w):
        X, Y, w = _stored(X, Y, w)
        return devices.cross_covariance(X, Y, w, center)
    zero = X.new_zeros((*X.shape[:-2], X.shape[-1]))
    x, y = (weighted_mean(P, w) if center else zero for P in (X, Y))
    near, far = X - x.unsqueeze(-2), Y - y.unsqueeze(-2)
    return (far if w is None else far * w.unsqueeze(-1)).mT @ near.conj(), x, y


def distance(X: Tensor, Y: Tensor, w: Tensor | None, x: Tensor, y: Tensor, R: Tensor) -> Tensor:
    """Return Σ w ‖R (x − x̄) − (y − ȳ)‖² (*,) for means x̄ and ȳ (*, k)."""
    if _by_triton(X, Y, w):
        return devices.fit_distance(*_stored(X, Y, w, x, y, R))
    misses = (X - x.unsqueeze(-2)) @ R.mT - (Y - y.unsqueeze(-2))
    squares = (misses.conj() * misses).real
    return (squares if w is None else squares * w.unsqueeze(-1)).sum((-2, -1))


def weighted_mean(P: Tensor, w: Tensor | None) -> Tensor:
    """Return the mean (*, k) of points; zero if there are none or all weights are zero."""
    if w is None:
        return P.mean(-2) if P.shape[-2] else P.sum(-2)
    total = w.sum(-1, keepdim=True)
    return (quotient(w, total, total > 0).unsqueeze(-1) * P).sum(-2)


def point_gradients(
    X: Tensor,
    Y: Tensor,
    w: Tensor | None,
    means: tuple[Tensor, Tensor],
    gC: Tensor,
    pulls: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """Return the gradients of X, Y and w, or None if the kernel does not compute them.

    Args:
        X, Y, w: the points and their weights.
        means: x̄ and ȳ.
        gC: the gradient of the cross-covariance (*, k, k).
        pulls: the gradients of x̄ and ȳ (*, k), or None for zero.
    """
    if _by_triton(X, Y, w, gC):
        x, y, gC, *pulled = _stored(*means, gC, *(pulls or ()))
        X, Y, w = _stored(X, Y, w)
        return devices.point_gradients(X, Y, w, (x, y), gC, (pulled[0], pulled[1]) if pulls else None)
    native = _kernel(X)
    if native is None or gC.dtype != X.dtype:
        return None
    gX, gY = (P.new_empty(*P.shape) for P in (X, Y))  # torch reads separate sizes faster than a tuple
    gw = None if w is None else w.new_empty(*w.shape)
    given = [None if x is None else in_memory(x) for x in (X, Y, w, *means, gC, *(pulls or (None, None)))]
    native.pull_points(*given, gX, gY, gw)
    return gX, gY, gw
