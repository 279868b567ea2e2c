"""Inverse roots of positive semi-definite matrices without gradient, in the kernel or in torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..precision import full_precision, negative_tolerance, rank_tolerance
from . import choice
from .call_counts import counts
from .fused import positive_part
from .ladder import EIGH


def inverse_root(A: Tensor, operation: str, p: float, eps: float, relative: bool, rtol: float, clamp: bool) -> Tensor:
    r"""Return :math:`(A+\epsilon I)^{-1/p}`.

    Args:
        A: matrices (*, d, d) in working precision.
        operation: name used in error messages.
        p: the root.
        eps: ε, added to the eigenvalues.
        relative: multiply ε by the largest eigenvalue in modulus.
        rtol: eigenvalues up to this multiple of the largest are left out. If negative, those at rounding level are, and
            with a positive ε none.
        clamp: set negative eigenvalues to zero instead of raising an error.
    """
    native = choice.kernel_for_functions(A) if rtol < 0 or not eps else None
    if native is not None:
        negative = math.inf if clamp else negative_tolerance(A.shape[-1], A.dtype)
        least = rtol if rtol >= 0 else 0.0 if eps else rank_tolerance(A.shape[-1], A.dtype)
        S, doubtful = native.power(A, -1 / p, eps, relative, least, negative, not choice.in_lanes(A.shape, A.dtype))
        if not doubtful:
            counts.call(A.shape[:-2].numel())
            return S
    w, V = EIGH.solve(A, operation)  # with the fallbacks for matrices that failed
    return _composed(w, V, operation, p, eps, relative, rtol, clamp)


def _composed(
    w: Tensor, V: Tensor, operation: str, p: float, eps: float, relative: bool, rtol: float, clamp: bool
) -> Tensor:
    """Return YYᴴ with Y = V (λ + ε)^(−1/2p)."""
    values, support = positive_part(w, operation, rtol, clamp)
    if eps:
        values = values + (eps * w.abs().amax(-1, keepdim=True) if relative and w.shape[-1] else eps)
        support = support & (values > 0) if rtol >= 0 else values > 0
    scale = torch.where(support, values, 1).pow(-0.5 / p).clamp_max(torch.finfo(w.dtype).max ** 0.5)
    Y = V * torch.where(support, scale, 0).unsqueeze(-2)
    with full_precision(V):
        return Y @ Y.mH
