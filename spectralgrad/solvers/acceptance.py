"""LAPACK's acceptance test of decompositions: residual and orthogonality, relative to what rounding explains."""

from __future__ import annotations

import torch
from torch import Tensor

from ..precision import resolved
from .symmetry import mirrored

THRESHOLD = 30.0  # LAPACK's test suite accepts residuals below 30 n u ‖A‖, with u = eps/2


def eigh_ratios(A: Tensor, w: Tensor, V: Tensor) -> Tensor:
    """Return max(‖A − VΛVᴴ‖/(‖A‖ n u), ‖VᴴV − I‖/(n u)) (*,) of eigendecompositions; infinite for NaN."""
    return _ratios(mirrored(A), V, w, V.mH, V)


def svd_ratios(M: Tensor, U: Tensor, S: Tensor, Vh: Tensor) -> Tensor:
    """Return the same (*,) of singular value decompositions, for both sides."""
    return torch.maximum(_ratios(M, U, S, Vh, U), _ratios(M, U, S, Vh, Vh.mH))


def orthonormality(V: Tensor) -> Tensor:
    """Return ‖VᴴV − I‖/(n u) (*,) of matrices (*, m, n); NaN for NaN.

    Products are taken in double precision: in single precision they have ten bits where TF32 is allowed.
    """
    unit = max(V.shape[-2:]) * torch.finfo(V.dtype).eps / 2
    return torch.linalg.matrix_norm(_defect(V.to(torch.promote_types(V.dtype, torch.float64))), 1) / unit


def _defect(V: Tensor) -> Tensor:
    gram = V.mH @ V
    return gram - torch.eye(gram.shape[-1], dtype=V.dtype, device=V.device)


def _ratios(A: Tensor, left: Tensor, values: Tensor, right: Tensor, basis: Tensor) -> Tensor:
    unit = max(A.shape[-2:]) * torch.finfo(A.dtype).eps / 2
    wide = torch.promote_types(A.dtype, torch.float64)
    scale = A.abs().amax((-2, -1)).to(wide).real
    scale = torch.where(scale > 0, resolved(scale), 1)
    A, left, right, basis = (x.to(wide) for x in (A, left, right, basis))
    A, values = A / scale[..., None, None], values.to(scale.dtype) / scale.unsqueeze(-1)
    residual = torch.linalg.matrix_norm(A - (left * values.unsqueeze(-2)) @ right, 1)
    size = torch.linalg.matrix_norm(A, 1).clamp_min(torch.finfo(scale.dtype).tiny)
    worst = torch.maximum(residual / size, torch.linalg.matrix_norm(_defect(basis), 1)) / unit
    return torch.where(torch.isfinite(worst), worst, torch.inf)
