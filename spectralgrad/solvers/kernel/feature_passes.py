"""Passes of the kernel over the features of a layer (N, C, *), in threads over the samples, without copies.

A function returns None for features that the kernel does not take; the caller then uses torch's products.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...native import Kernel, kernel
from ...native.thresholds import table


def _kernel(like: Tensor, *features: Tensor | None) -> Kernel | None:
    """Return the kernel if it takes features and (G, d) statistics ``like`` of the same type."""
    native, limits = kernel(), table()
    if native is None or not native.takes(like):
        return None
    if not limits.channels_from <= like.shape[-1] <= limits.channels_up_to:
        return None
    for X in features:
        if X is not None and (X.dtype != like.dtype or not X.is_contiguous() or X.shape[2:].numel() < limits.positions):
            return None
    return native


def moments(X: Tensor, mean: Tensor, Y: Tensor | None = None) -> tuple[Tensor, Tensor] | None:
    """Return Σ y (x − mean)ᵀ (G, d, d) and Σ y (G, d), summed in float64 over chunks; without ``Y``, y is x − mean.

    Args:
        X: features (N, C, *).
        mean: (G, d), C = G d.
        Y: features of the same shape, or None.
    """
    native = _kernel(mean, X, Y)
    if native is None:
        return None
    C, sums = mean.new_empty(*mean.shape, mean.shape[-1]), torch.empty_like(mean)
    native.features("moments", sizes(X, mean), X, mean, Y, C, sums)
    return C, sums


def affine(
    Y: Tensor,
    y_mean: Tensor,
    A: Tensor,
    shift: Tensor | None = None,
    second: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor | None:
    """Return A (y − y_mean) + shift at every position, plus B (x − x_mean) for ``second`` = (x, x_mean, B).

    Args:
        Y, x: features (N, C, *).
        y_mean, x_mean, shift: (G, d).
        A, B: matrices (G, d, d).
    """
    X, x_mean, B = second or (None, None, None)
    native = _kernel(y_mean, Y, X)
    if native is None:
        return None
    out = torch.empty_like(Y)
    native.features("map", sizes(Y, y_mean), Y, y_mean, A, X, x_mean, B, shift, out)
    return out


def sizes(X: Tensor, mean: Tensor) -> tuple[int, ...]:
    """Return the numbers of samples, groups, channels and positions."""
    return X.shape[0], *mean.shape, X.shape[2:].numel()
