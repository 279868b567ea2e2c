"""Roots of positive semi-definite matrices: the range, the check, and the fused way through the kernel."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import IndefiniteError, batch_positions
from ..precision import full_precision, negative_tolerance, rank_tolerance, resolved
from . import choice
from .ladder import EIGH
from .statistics import counts


def positive_part(w: Tensor, operation: str, rtol: float, clamp: bool) -> tuple[Tensor, Tensor]:
    """Eigenvalues with negative ones set to zero, and the mask of the range (``rtol`` < 0: the default tolerance).

    Without ``clamp`` a clearly negative one is an error.
    """
    d = w.shape[-1]
    size = w.abs().amax(-1) if d else w.new_zeros(w.shape[:-1])
    if w.numel() and not clamp:
        limit = negative_tolerance(d, w.dtype) * resolved(size)
        for position in batch_positions(w.amin(-1) < -limit)[:1]:
            raise IndefiniteError(float(w[position].amin()), position, operation, float(limit[position]))
    values = w.clamp_min(0)
    return values, values > _tolerance(w, rtol) * size.unsqueeze(-1)


def root(A: Tensor, operation: str, inverse: bool, rtol: float, clamp: bool) -> tuple[Tensor, Tensor, Tensor]:
    """A^(1/2) or A^(-1/2) on the range, √λ with zeros off it, and the eigenvectors."""
    native = choice.fusing(A)
    if native is not None:
        negative = math.inf if clamp else negative_tolerance(A.shape[-1], A.dtype)
        S, s, V, doubtful = native.root(A, inverse, _tolerance(A, rtol), negative)
        if not doubtful:
            counts.call(A.shape[:-2].numel())
            return S, s, V
    w, V = EIGH.solve(A, operation)
    values, support = positive_part(w, operation, rtol, clamp)
    s = torch.where(support, values, 0).sqrt()
    scale = torch.where(support, values.rsqrt(), 0) if inverse else s
    with full_precision(V):
        return (V * scale.unsqueeze(-2)) @ V.mH, s, V


def root_derivative(V: Tensor, s: Tensor, G: Tensor, inverse: bool, terms: int = 0) -> Tensor:
    r"""The derivative of the root in the direction of the Hermitian part of G; ``s`` is √λ, zero off the range.

    The divided differences are :math:`1/(s_i+s_j)`, or :math:`-1/(s_is_j(s_i+s_j))` for the inverse root and
    :math:`f(\lambda)/\lambda=s^{-3}` between range and null space. The latter are applied in two steps: their product
    may leave the type where the result does not. With ``terms`` it is what SVD-Taylor makes of it: :math:`n` terms of
    its series leave :math:`1-x^n` of an entry off the diagonal, :math:`x=\min/\max` of the two eigenvalues.
    """
    native = choice.fusing(V)
    if native is not None:
        return native.root_derivative(V, s, G, inverse, terms)
    total = s.unsqueeze(-1) + s.unsqueeze(-2)
    weights = torch.where(total > 0, 1 / torch.where(total > 0, total, 1), 0)
    if terms:
        weights = weights * _series_share(s, terms)
    if not inverse:
        return _congruent(V, weights, G)
    z = torch.where(s > 0, 1 / torch.where(s > 0, s, 1), 0)
    rows, columns = z.unsqueeze(-1), z.unsqueeze(-2)
    first = torch.where((rows > 0) & (columns > 0), -rows * columns, (rows + columns).square())
    return _congruent(V, first, G, weights)


def _series_share(s: Tensor, terms: int) -> Tensor:
    """1 − xⁿ off the diagonal and 1 on it, accurate where x = (s_i/s_j)² is near one."""
    rows, columns = s.unsqueeze(-1), s.unsqueeze(-2)
    larger = torch.maximum(rows, columns)
    y = (rows - columns).abs() / torch.where(larger > 0, larger, 1)
    share = -torch.expm1(2 * terms * torch.log1p(-y))
    return share.masked_fill(torch.eye(s.shape[-1], dtype=torch.bool, device=s.device), 1)


def weighted(V: Tensor, gamma: Tensor, G: Tensor) -> Tensor:
    """V (Γ ∘ Vᴴ G V) Vᴴ for a real symmetric Γ and the Hermitian part of G: what the derivative of a function costs."""
    native = choice.fusing(V)
    return _congruent(V, gamma, G) if native is None else native.weighted(V, gamma, G)


def _congruent(V: Tensor, gamma: Tensor, G: Tensor, factor: Tensor | float = 1.0) -> Tensor:
    with full_precision(V):
        return V @ (gamma * (V.mH @ ((G + G.mH) / 2) @ V) * factor) @ V.mH


def _tolerance(A: Tensor, rtol: float) -> float:
    return rank_tolerance(A.shape[-1], A.dtype) if rtol < 0 else rtol
