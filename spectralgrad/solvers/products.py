"""Products of matrices with bases, in operations that torch differentiates: V diag(x) Vᴴ, VᴴGV and V X Vᴴ."""

from __future__ import annotations

from torch import Tensor

from ..precision import full_precision


def composed(U: Tensor, values: Tensor, Vh: Tensor) -> Tensor:
    """Return U diag(values) Vh for real values, in the type of U."""
    return (U * values.to(U.dtype).unsqueeze(-2)) @ Vh


def in_basis(V: Tensor, G: Tensor) -> Tensor:
    """Return VᴴGV."""
    return V.mH @ G @ V


def from_basis(V: Tensor, X: Tensor) -> Tensor:
    """Return V X Vᴴ."""
    return V @ X @ V.mH


def congruence(V: Tensor, weights: Tensor, G: Tensor) -> Tensor:
    """Return V (weights ∘ VᴴGV) Vᴴ."""
    with full_precision(V):
        return from_basis(V, weights * in_basis(V, G))
