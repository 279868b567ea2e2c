"""Treatments of the weight: spectral normalisation, orthogonal loss, orthogonal weights (Eq. 11–13)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from spectralgrad.nn import orthogonality_loss
from spectralgrad.testing import random_orthogonal

from ..inputs import gaussian
from ..registry import computes
from ..value_conditions import Value
from .matrices import condition, defect, error, eye, spectral_norm


def normalised_by_torch(W: Tensor) -> Tensor:
    """W/σ_max(W) as :func:`torch.nn.utils.parametrizations.spectral_norm` computes it."""
    layer = nn.Linear(W.shape[1], W.shape[0], bias=False, dtype=W.dtype)
    with torch.no_grad():
        layer.weight.copy_(W)
        nn.utils.parametrizations.spectral_norm(layer, n_power_iterations=200)
        for _ in range(20):
            weight = layer.weight
    return weight


@computes("eccv/O4")
def spectral_normalisation() -> Mapping[str, Value]:
    """σ_max(WY)/σ_max(Y) after Eq. 11, and κ of the covariance before and after, without and with ε = 1."""
    W, Y = 10 * gaussian(8, 8), gaussian(8, 40, seed=1)
    normal = W / spectral_norm(W)
    before, after = W @ Y @ Y.T @ W.T, normal @ Y @ Y.T @ normal.T
    return {
        "largest": spectral_norm(normal @ Y) / spectral_norm(Y),
        "condition": condition(W @ Y) ** 2,
        "change": (condition(normal @ Y) / condition(W @ Y)) ** 2,
        "change_with_eps": condition(after + eye(8)) / condition(before + eye(8)),
        "torch_error": error(normalised_by_torch(W), normal),
    }


@computes("eccv/O5")
def preserved_norms() -> Mapping[str, Value]:
    """‖WY‖_F beside ‖Y‖_F and beside ‖W‖_F for an orthogonal W."""
    W, Y = random_orthogonal(8), gaussian(8, 40)
    WY = (W @ Y).norm()
    return {"to_input": float(WY / Y.norm()), "to_weight": float(WY / W.norm())}


@computes("eccv/O6")
def soft_orthogonality() -> Mapping[str, Value]:
    """Eq. 12 for a first convolution, 64×27: at orthonormal columns, and how much more elsewhere."""
    W = random_orthogonal(64)[:, :27]
    lowest = float(orthogonality_loss(W, side="rows"))
    elsewhere = [gaussian(64, 27, seed=seed) / 5 for seed in range(20)]
    nearby = [W + step * gaussian(64, 27, seed=1) for step in (1e-3, 1e-2)]
    return {
        "lowest": lowest,
        "excess_elsewhere": min(float(orthogonality_loss(M, side="rows")) for M in elsewhere) - lowest,
        "excess_nearby": min(float(orthogonality_loss(M, side="rows")) for M in nearby) - lowest,
    }


@computes("eccv/O7")
def exponential() -> Mapping[str, Value]:
    """‖QQᵀ − I‖_F and det Q for Q = exp(W − Wᵀ) (Eq. 13)."""
    W = gaussian(8, 8)
    Q = torch.linalg.matrix_exp(W - W.T)
    return {"defect": defect(Q), "determinant": float(torch.linalg.det(Q))}


def jacobian(filters: Tensor, size: int, circular: bool) -> Tensor:
    """The matrix of a convolution of size×size maps that preserves the size."""
    c, reach = filters.shape[1], filters.shape[-1] // 2
    x = eye(c * size * size).reshape(-1, c, size, size)
    if circular:
        x = nn.functional.pad(x, (reach,) * 4, mode="circular")
    return nn.functional.conv2d(x, filters, padding=0 if circular else reach).flatten(1).T


def skew_filter() -> Tensor:
    """L = F − flip(F)ᵀ, the skew-symmetric filter of the cited skew orthogonal convolutions."""
    F = gaussian(3, 3, 3, 3)
    return F - F.flip(-1, -2).transpose(0, 1)


def has_skew_part(W: Tensor) -> bool:
    """Whether W − Wᵀ can be formed."""
    try:
        return bool((W - W.T).isfinite().all())
    except RuntimeError:
        return False


@computes("eccv/O8")
def orthogonal_convolution() -> Mapping[str, Value]:
    """Singular values of the convolution whose 18×2×3×3 filter is an orthogonal 18×18 matrix; and of exp(J) for SOC."""
    reshaped = torch.linalg.matrix_exp((W := gaussian(18, 18)) - W.T).reshape(18, 2, 3, 3)
    circular, zeros = (torch.linalg.svdvals(jacobian(reshaped, 5, c)) for c in (True, False))
    skew = [jacobian(skew_filter(), 6, c) for c in (False, True)]
    return {
        "circular": [float(circular.min()), float(circular.max())],
        "zero_padded": [float(zeros.min()), float(zeros.max())],
        "first_convolution": has_skew_part(gaussian(64, 27)),
        "skewness": [float((J + J.T).abs().max()) for J in skew],
        "soc_defect": [defect(torch.linalg.matrix_exp(J)) for J in skew],
    }


@computes("eccv/O9")
def truncated_exponential() -> Mapping[str, Value]:
    """‖SSᵀ − I‖₂ for the exponential series cut after 5, 10, 15 terms at ‖J‖ = 1.27, and its share of the bound."""
    norm = 1.27
    J = jacobian(skew_filter(), 6, circular=False)
    J = J * norm / spectral_norm(J)
    S, term, errors = eye(len(J)), eye(len(J)), {}
    for j in range(1, 16):
        term = term @ J / j
        S = S + term
        errors[j] = spectral_norm(S @ S.T - eye(len(J)))
    bounds = {k: 2.2 * norm ** (k + 1) / math.factorial(k + 1) for k in (5, 10, 15)}
    return {"errors": [errors[k] for k in bounds], "share_of_bound": [errors[k] / bounds[k] for k in bounds]}
