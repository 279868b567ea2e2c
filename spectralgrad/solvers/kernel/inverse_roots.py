"""Inverse roots of positive semi-definite matrices without gradient, in the kernel or in torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...native.functions import in_memory
from ...precision import full_precision, negative_tolerance, resolved
from ..call_counts import counts
from ..decompose import choice
from ..decompose.fallbacks import EIGH
from ..symmetry import refuse_negative
from .roots import positive_part


def inverse_root(
    A: Tensor,
    operation: str,
    p: float,
    eps: float,
    relative: bool,
    rtol: float,
    clamp: bool,
    dtype: torch.dtype | None = None,
) -> Tensor:
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
        dtype: as in :func:`spectralgrad.solvers.kernel.roots.positive_part`.
    """
    plan = choice.symmetric(A, "power") if rtol < 0 or not eps else None
    if plan is not None:
        zero, negative, asymmetry = choice.tolerances(plan.d, A.dtype, dtype)
        least = rtol if rtol >= 0 else 0.0 if eps else zero
        limits = least, math.inf if clamp else negative, asymmetry
        S, doubtful = plan.power(in_memory(A), -1 / p, eps, relative, limits)
        if not doubtful:
            counts.call(plan.batch)
            return S
    w, V = EIGH.solve(A, operation, dtype)  # with the fallbacks for matrices that failed
    values, support = _shifted(w, operation, eps, relative, rtol, clamp, dtype)
    scale = torch.where(support, values, 1).pow(-0.5 / p).clamp_max(torch.finfo(w.dtype).max ** 0.5)
    Y = V * torch.where(support, scale, 0).unsqueeze(-2)
    with full_precision(V):
        return Y @ Y.mH


def _shifted(
    w: Tensor, operation: str, eps: float, relative: bool, rtol: float, clamp: bool, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    """Return λ + ε and the mask of the eigenvalues to which the power is applied.

    Eigenvalues that are negative by rounding error count as zero before ε is added. Others must not be negative
    afterwards, which is an error.
    """
    if not eps:
        return positive_part(w, operation, rtol, clamp, dtype)
    size = w.abs().amax(-1, keepdim=True) if w.shape[-1] else w
    least = negative_tolerance(w.shape[-1], dtype or w.dtype) * resolved(size)
    values = torch.where((w < 0) & (clamp | (w >= -least)), 0, w) + (eps * size if relative else eps)
    if w.numel() and not clamp:
        refuse_negative(values, size.squeeze(-1), operation, dtype or w.dtype)
    support = values > 0
    return values, support & (w > rtol * size) if rtol >= 0 else support
