"""What the alignment of points needs besides a decomposition, in one pass over the points each, for eager calls.

Points are (*, n, k), weights (*, n) or None for ones, means (*, k).
"""

from __future__ import annotations

from torch import Tensor

from ...native import Kernel, kernel
from ...precision import quotient

_COORDINATES = 8  # the most that the kernel takes
Pair = tuple[Tensor, Tensor]


def _kernel(X: Tensor) -> Kernel | None:
    native = kernel()
    return native if native is not None and native.takes(X) and X.numel() and X.shape[-1] <= _COORDINATES else None


def cross_covariance(X: Tensor, Y: Tensor, w: Tensor | None, center: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return C = Σ w (y − ȳ)(x − x̄)ᴴ (*, k, k), x̄ and ȳ; the means are zero unless the points are centred."""
    shape = (*X.shape[:-2], X.shape[-1])
    native = _kernel(X)
    if native is None:
        x, y = (weighted_mean(P, w) if center else P.new_zeros(shape) for P in (X, Y))
        left = Y - y.unsqueeze(-2)
        left = left if w is None else left * w.unsqueeze(-1)
        return left.mT @ (X - x.unsqueeze(-2)).conj(), x, y
    make = X.new_empty if center else X.new_zeros
    C, x, y = X.new_empty(*shape, X.shape[-1]), make(*shape), make(*shape)
    native.points("cross_covariance", X, Y, w, *((x, y) if center else (None, None)), C)
    return C, x, y


def weighted_mean(P: Tensor, w: Tensor | None) -> Tensor:
    """Return the mean (*, k) of points; zero if there are none or all weights are zero."""
    if w is None:
        return P.mean(-2) if P.shape[-2] else P.sum(-2)
    total = w.sum(-1, keepdim=True)
    return (quotient(w, total, total > 0).unsqueeze(-1) * P).sum(-2)


def fit_distance(X: Tensor, Y: Tensor, w: Tensor | None, x: Tensor, y: Tensor, R: Tensor) -> Tensor:
    """Return Σ w ‖R (x − x̄) − (y − ȳ)‖² (*,)."""
    native = _kernel(X)
    if native is None:
        misses = (X - x.unsqueeze(-2)) @ R.mT - (Y - y.unsqueeze(-2))
        squares = (misses.conj() * misses).real.sum(-1)
        return (squares if w is None else w * squares).sum(-1)
    e = X.new_empty(X.shape[:-2])
    native.points("fit_distance", X, Y, w, x, y, R, e)
    return e


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
    native.points("point_gradient", X, Y, w, *means, gC, None, *(pulls or (None, None)), gX, gY, gw)
    return gX, gY, gw
