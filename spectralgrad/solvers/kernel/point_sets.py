"""The alignment of points in one call of the kernel, and its gradient in another, for eager calls.

Points are (*, n, k), weights (*, n) or None for ones, means (*, k).
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ...native import Kernel, kernel
from ...native.functions import in_memory
from ...precision import quotient, rank_tolerance
from ..call_counts import counts
from ..decompose import choice

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
    native = _kernel(X)
    if native is None or gC.dtype != X.dtype:
        return None
    gX, gY = (P.new_empty(*P.shape) for P in (X, Y))  # torch reads separate sizes faster than a tuple
    gw = None if w is None else w.new_empty(*w.shape)
    given = [None if x is None else in_memory(x) for x in (X, Y, w, *means, gC, *(pulls or (None, None)))]
    native.pull_points(*given, gX, gY, gw)
    return gX, gY, gw
