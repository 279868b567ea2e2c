"""Roots of positive semi-definite matrices: the range, the check, and the fused way through the kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import IndefiniteError, batch_positions
from ..native import kernel
from ..precision import full_precision, negative_tolerance, rank_tolerance
from . import choice
from .ladder import EIGH
from .report import counts


def positive_part(w: Tensor, operation: str, rtol: float, clamp: bool) -> tuple[Tensor, Tensor]:
    """Eigenvalues with negative ones set to zero, and the mask of the range (``rtol`` < 0: the default tolerance).

    Without ``clamp`` a clearly negative one is an error.
    """
    d = w.shape[-1]
    size = w.abs().amax(-1) if d else w.new_zeros(w.shape[:-1])
    if w.numel() and not clamp:
        limit = negative_tolerance(d, w.dtype) * size
        for position in batch_positions(w.amin(-1) < -limit)[:1]:
            raise IndefiniteError(float(w[position].amin()), position, operation, float(limit[position]))
    values = w.clamp_min(0)
    return values, values > _tolerance(w, rtol) * size.unsqueeze(-1)


def root(A: Tensor, operation: str, inverse: bool, rtol: float, clamp: bool) -> tuple[Tensor, Tensor, Tensor]:
    """A^(1/2) or A^(-1/2) on the range, the eigenvalues with zeros off it, and the eigenvectors."""
    native = kernel() if choice.fuses(A) else None
    if native is not None:
        S, w, V, failed = native.root(A, inverse, _tolerance(A, rtol))
        if not failed:
            counts.call(A.shape[:-2].numel())
            values, support = positive_part(w, operation, rtol, clamp)
            return S, torch.where(support, values, 0), V
    w, V = EIGH.solve(A, operation)
    values, support = positive_part(w, operation, rtol, clamp)
    values = torch.where(support, values, 0)
    scale = torch.where(support, values.rsqrt() if inverse else values.sqrt(), 0)
    with full_precision(V):
        return (V * scale.unsqueeze(-2)) @ V.mH, values, V


def root_derivative(V: Tensor, w: Tensor, G: Tensor, inverse: bool) -> Tensor:
    r"""The derivative of the root in the direction of the Hermitian part of G; ``w`` is zero off the range.

    The divided differences are :math:`1/(s_i+s_j)`, or :math:`-1/(s_is_j(s_i+s_j))` for the inverse root and
    :math:`f(\lambda)/\lambda=s^{-3}` between range and null space, with :math:`s=\sqrt\lambda`.
    """
    native = kernel() if choice.fuses(V) else None
    if native is not None:
        return native.root_derivative(V, w, G, inverse)
    s = w.sqrt()
    total = s.unsqueeze(-1) + s.unsqueeze(-2)
    weights = torch.where(total > 0, 1 / torch.where(total > 0, total, 1), 0)
    if inverse:
        z = torch.where(s > 0, 1 / torch.where(s > 0, s, 1), 0)
        rows, columns = z.unsqueeze(-1), z.unsqueeze(-2)
        weights = torch.where((rows > 0) & (columns > 0), -rows * columns * weights, (rows + columns) ** 3)
    with full_precision(V):
        return V @ (weights * (V.mH @ ((G + G.mH) / 2) @ V)) @ V.mH


def _tolerance(A: Tensor, rtol: float) -> float:
    return rank_tolerance(A.shape[-1], A.dtype) if rtol < 0 else rtol
