r"""What a classifier after covariance pooling sees: S = Cᵅ, or one of the variants that later papers propose.

A linear classifier of S = Cᵅ is a Riemannian classifier for the power-Euclidean metric. RiemGCP derives three of them:
S itself (Pow-EMLR), S/α (ScalePow-EMLR) and (S − I)/α (Pow-TMLR, the logarithm at the identity under that metric).

The scaling eigen branch adds :math:`\lVert C^{1/2}e^{-C}\rVert_F\,S` to S = C^{1/2}. Its factor is

.. math:: \lVert C^{1/2}e^{-C}\rVert_F=\Bigl(\sum_i\lambda_ie^{-2\lambda_i}\Bigr)^{1/2},

a function of the eigenvalues alone, whose derivative divides by no gap. Zero eigenvalues contribute nothing, so it is
the same from XXᵀ and from XᵀX. The released code divides the matrix :math:`C^{1/2}e^{-C}` by itself over its norm,
entry by entry, which is the norm wherever the entry is not zero.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ...errors import ArgumentError
from ...linalg.covariances import shifted
from ...linalg.eigenvalues import eigvalsh

Head = Literal["plain", "scaled", "tangent", "seb"]
_NEGLIGIBLE = 1e4  # e^(−2λ) is zero in every type beyond


def check_head(head: str, power: float | str, normalize: bool, where: str) -> None:
    """Raise an error if the head does not exist for this power, or if the normalization would undo it."""
    if head == "plain":
        return
    if normalize:
        raise ArgumentError(f"{where}: expected normalize=False with head={head!r}, whose factor it removes, got True")
    if head == "seb" and power != 0.5:
        raise ArgumentError(f"{where}: expected power=0.5 with head='seb', got {power!r}")
    if power in ("log", 0):
        raise ArgumentError(f"{where}: expected a power other than 0 with head={head!r}, got {power!r}")


def in_head(S: Tensor, M: Tensor, size: float | Tensor, power: float | str, head: Head) -> Tensor:
    """The matrices that the head makes of S (*, C, C) = f(σ²M), for ``M`` of any size with σ = ``size``."""
    if head == "plain":
        return S
    if head == "seb":
        return S * (1 + _branch_norm(M, size))
    return (S if head == "scaled" else shifted(S, -1.0)) / float(power)


def _branch_norm(M: Tensor, size: float | Tensor) -> Tensor:
    """:math:`\\lVert C^{1/2}e^{-C}\\rVert_F` (*, 1, 1) for C = σ²M; its gradient at C = 0 is taken as zero."""
    w = (eigvalsh(M).unsqueeze(-2) * size**2).clamp(0, _NEGLIGIBLE)
    squared = (w * (-2 * w).exp()).sum(-1, keepdim=True)
    positive = squared.detach() > 0
    return torch.where(positive, torch.where(positive, squared, 1).sqrt(), 0)
