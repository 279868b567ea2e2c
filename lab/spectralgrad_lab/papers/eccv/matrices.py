"""Measures of matrices that several items of the paper use."""

from __future__ import annotations

import torch
from torch import Tensor

SHAPES = ((8, 8), (5, 9), (9, 5), (64, 27))
"""Shapes of gradients: square, wide, tall, and a first convolution's with 3×3 filters of colour images."""


def eye(n: int) -> Tensor:
    """The identity in float64."""
    return torch.eye(n, dtype=torch.float64)


def condition(M: Tensor) -> float:
    """κ = σ_max/σ_min."""
    return float(torch.linalg.cond(M))


def spectral_norm(M: Tensor) -> float:
    """σ_max."""
    return float(torch.linalg.matrix_norm(M, 2))


def error(A: Tensor, B: Tensor) -> float:
    """‖A − B‖_F / ‖B‖_F."""
    return float((A - B).norm() / B.norm())


def defect(W: Tensor, rate: float = 0.0, G: Tensor | None = None) -> float:
    """Eq. 18: ‖(W − ηG)(W − ηG)ᵀ − I‖_F."""
    U = W if G is None else W - rate * G
    return float((U @ U.T - eye(len(U))).norm())
