"""What the alignment of sets of points with up to four coordinates needs besides a rotation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import launching

__all__ = ["cross_covariance", "fit_distance", "point_gradients"]

WARPS = 4


def plan(n: int, k: int, threads: int) -> dict[str, Any]:
    """Return what the compiler knows about calls for sets of n points with k coordinates."""
    warps = min(WARPS, 1 << (-(-n // threads) - 1).bit_length()) if n > threads else 1
    return {"N": k, "ROWS": threads * warps, "num_warps": warps}


def _known(X: Tensor, w: Tensor | None) -> dict[str, Any]:
    return {**plan(X.shape[-2], X.shape[-1], launching.warp()), "WEIGHTED": w is not None}


def cross_covariance(X: Tensor, Y: Tensor, w: Tensor | None, center: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return C = Σ w (y − ȳ)(x − x̄)ᵀ (*, k, k), x̄ and ȳ (*, k); the means are zero unless the points are centred.

    A mask is a weight of 0 or 1. Points of weight zero must be finite.

    Args:
        X, Y: contiguous points (*, n, k), k ≤ 4, of one real type.
        w: contiguous weights (*, n), or None for ones.
        center: subtract the weighted means, which are zero if the sum of the weights is not positive.
    """
    batch, k = X.shape[:-2], X.shape[-1]
    C, x, y = X.new_empty(*batch, k, k), X.new_empty(*batch, k), X.new_empty(*batch, k)
    arguments = X, Y, X if w is None else w, x, y, C, X.shape[-2]
    launching.run("points.cross_covariance", launching.batched(X.shape), *arguments, CENTER=center, **_known(X, w))
    return C, x, y


def fit_distance(X: Tensor, Y: Tensor, w: Tensor | None, x: Tensor, y: Tensor, R: Tensor) -> Tensor:
    """Return Σ w ‖R (x − x̄) − (y − ȳ)‖² (*,). All tensors are contiguous."""
    e = X.new_empty(X.shape[:-2])
    arguments = X, Y, X if w is None else w, x, y, R, e, X.shape[-2]
    launching.run("points.fit_distance", e.numel(), *arguments, **_known(X, w))
    return e


def point_gradients(
    X: Tensor,
    Y: Tensor,
    w: Tensor | None,
    means: tuple[Tensor, Tensor],
    gC: Tensor,
    pulls: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of X, Y and w. All tensors are contiguous.

    Args:
        X, Y, w: the points and their weights.
        means: x̄ and ȳ.
        gC: the gradient of the cross-covariance (*, k, k).
        pulls: the gradients of x̄ and ȳ (*, k), or None for zero.
    """
    gX, gY = torch.empty_like(X), torch.empty_like(Y)
    gw = None if w is None else torch.empty_like(w)
    px, py = pulls or (torch.zeros_like(means[0]), torch.zeros_like(means[1]))
    inputs = X, Y, X if w is None else w, *means, gC, px, py
    outputs = gX, gY, gX if gw is None else gw, X.shape[-2]
    launching.run("points.point_gradients", launching.batched(X.shape), *inputs, *outputs, **_known(X, w))
    return gX, gY, gw
