r"""The learning rate that keeps a weight orthogonal (OLR): the paper's formula, and the exact minimiser.

With :math:`A=WW^T-I`, :math:`B=GW^T+WG^T`, :math:`C=GG^T` the objective of Eq. 18 is a quartic,

.. math:: f(\eta)=\lVert A-\eta B+\eta^2C\rVert_F^2=\lVert A\rVert^2-2\eta\langle A,B\rangle
          +\eta^2(\lVert B\rVert^2+2\langle A,C\rangle)-2\eta^3\langle B,C\rangle+\eta^4\lVert C\rVert^2 .

:math:`W^TW-I` in place of :math:`WW^T-I` changes it by a constant, so the smaller of the two is used. Eq. 20 is one
Newton step from η = 0 on :math:`\lVert w-\eta l\rVert^4`, which makes W small instead of orthogonal (claim O16).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..dispatch.arguments import check_range, checked
from ..dispatch.finite import check_finite
from ..dispatch.host import on_host_without_double
from ..errors import ShapeError, check_matrix
from ..precision import full_precision

__all__ = ["optimal_rate"]

OBJECTIVES = ("paper", "exact")
_REAL = 1e-6  # a root of the cubic counts as real up to this relative imaginary part: rounding splits double roots
_DOUBT = 64 * np.finfo(np.float64).eps  # relative rounding error of a value of the quartic


@checked
def optimal_rate(
    W: Tensor, G: Tensor, *, objective: Literal["paper", "exact"] = "paper", limit: float | None = None
) -> Tensor:
    r"""The learning rate η for which :math:`W-\eta G` is meant to be as close to orthogonal as possible.

    ``"paper"`` is Eq. 20 for the flattened w and l,

    .. math:: \eta^\star=\frac{w^Tw\;l^Tw}{w^Tw\;l^Tl+2\,(l^Tw)^2},\qquad
              \lvert\eta^\star\rvert\le\frac{1}{2\sqrt2}\frac{\lVert W\rVert_F}{\lVert G\rVert_F},

    which has the sign of :math:`\langle G,W\rangle`. ``"exact"`` is the minimiser of
    :math:`\lVert(W-\eta G)(W-\eta G)^T-I\rVert_F` over all real η, found among the roots of a cubic.

    Args:
        W: the weight, a matrix (m, n) or a filter (out, ...).
        G: its gradient, of the same shape.
        objective: ``"paper"`` or ``"exact"``.
        limit: the learning rate of the parameter's group. If given, the result is the rate to use. ``"paper"``: Eq. 20
            if it lies between 0 and the limit, otherwise the limit. ``"exact"``: the minimiser on (0, limit] if it
            reduces the objective, otherwise the limit.

    Returns:
        a scalar in float64; zero (or the limit, if given) if ``G`` is zero.

    Raises:
        ShapeError: ``W`` and ``G`` have different shapes or fewer than two dimensions.
        ArgumentError: ``objective`` is unknown, or ``limit`` negative or not finite.
        NonFiniteError: ``W`` or ``G`` contains NaN or infinity.

    Example:
        >>> W = torch.eye(3, dtype=torch.float64)
        >>> optimal_rate(W, 2 * W)                      # 1/6, for every W
        tensor(0.1667, dtype=torch.float64)
        >>> round(float(optimal_rate(3 * W, 2 * W, objective="exact")), 9)    # 3 − 2η = 1, or −1 at η = 2
        1.0

    Reference: Song, Sebe and Wang, ECCV 2022, Eq. 18–21.
    """
    for name, X in (("W", W), ("G", G)):
        check_matrix(X, f"optimal_rate, {name}")
        check_finite(X, f"optimal_rate, {name}", X.dim())
    if W.shape != G.shape or W.dtype.is_complex != G.dtype.is_complex:
        raise ShapeError(
            "optimal_rate: expected a weight W and a gradient G of one shape (m, n), both real or both complex, "
            f"got {tuple(W.shape)} of {W.dtype} and {tuple(G.shape)} of {G.dtype}"
        )
    check_range(limit, "limit", "optimal_rate", 0)
    return rate_of(W, G, objective, limit)


@on_host_without_double
def rate_of(W: Tensor, G: Tensor, objective: str, limit: float | None) -> Tensor:
    """Return :func:`optimal_rate` without its checks; zero, or the limit, if ``G`` is not finite."""
    with torch.no_grad(), full_precision(W):
        W, G = (x.detach().flatten(1).to(torch.complex128 if x.dtype.is_complex else torch.float64) for x in (W, G))
        if objective == "exact":
            return _exact(W, G, limit)
        rate = _newton_step(W, G)
        return rate if limit is None else torch.where((rate > 0) & (rate < limit), rate, limit)


def _newton_step(W: Tensor, G: Tensor) -> Tensor:
    ww, gg, gw = (torch.vdot(x.flatten(), y.flatten()).real for x, y in ((W, W), (G, G), (G, W)))
    bottom = ww * gg + 2 * gw.square()
    return torch.where(bottom > 0, ww * gw / torch.where(bottom > 0, bottom, 1), 0)


def _exact(W: Tensor, G: Tensor, limit: float | None) -> Tensor:
    size = float(torch.linalg.vector_norm(G))
    if not np.isfinite(size) or size == 0 or not bool(torch.isfinite(W).all()):
        return W.real.new_tensor(0.0 if limit is None else limit)
    quartic = _quartic(W, G / size)
    found = np.roots(np.polyder(quartic))
    stationary = found.real[np.abs(found.imag) <= _REAL * np.abs(found)]
    if limit is not None:
        inside = stationary[(stationary > 0) & (stationary < limit * size)]
        stationary = np.append(inside, limit * size)
    best = _best(quartic, stationary)
    if limit is not None and np.polyval(quartic, best) >= quartic[-1]:  # no candidate improves on f(0)
        best = limit * size
    return W.real.new_tensor(best / size)


def _best(quartic: np.ndarray, rates: np.ndarray) -> float:
    """The rate with the smallest objective; the smallest rate if several agree up to rounding."""
    values, doubt = np.polyval(quartic, rates), np.polyval(np.abs(quartic), np.abs(rates))
    equal = rates[values <= values.min() + _DOUBT * doubt]
    return float(equal[np.argmin(np.abs(equal))])


def _quartic(W: Tensor, G: Tensor) -> np.ndarray:
    """Coefficients of f, highest power first."""
    if W.shape[0] > W.shape[1]:
        W, G = W.mH, G.mH
    A = W @ W.mH - torch.eye(W.shape[0], dtype=W.dtype, device=W.device)
    B, C = G @ W.mH + W @ G.mH, G @ G.mH

    def dot(X: Tensor, Y: Tensor) -> float:
        return float(torch.vdot(X.flatten(), Y.flatten()).real)

    return np.array([dot(C, C), -2 * dot(B, C), dot(B, B) + 2 * dot(A, C), -2 * dot(A, B), dot(A, A)])
