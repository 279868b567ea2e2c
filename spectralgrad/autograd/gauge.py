r"""Gauge dependence: at a tie a loss may depend on the eigenspace, but not on the choice of eigenvectors within it.

Within an eigenspace the eigenvectors are defined only up to a rotation, the gauge. For a loss that does not depend on
this choice the coupling :math:`V^H\bar V` is Hermitian there; its skew part measures the dependence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..precision import resolved
from .pairwise import differences, norm


def tied(w: Tensor) -> Tensor:
    r"""Return the mask (*, d, d) of pairs of eigenvalues closer than :math:`64\,\epsilon\|A\|`.

    The stored matrix does not determine their eigenvectors; :class:`spectralgrad.Pade` uses the same factor.
    """
    return differences(w).abs() <= 64 * torch.finfo(w.dtype).eps * norm(w)[..., None, None]


def column_norms(G: Tensor) -> Tensor:
    """Return the Euclidean norms (*, d) of the columns of a cotangent; their squares may overflow or underflow."""
    if 0 in G.shape[-2:]:
        return torch.linalg.vector_norm(G, dim=-2)
    size = resolved(G.abs().amax(-2, keepdim=True))
    return torch.linalg.vector_norm(G / size, dim=-2) * size.squeeze(-2)


def noise_level(sizes: Tensor, eps: float) -> Tensor:
    r"""Return :math:`8\epsilon\sqrt d(\|\bar v_i\|+\|\bar v_j\|)`, the level of rounding error in the skew coupling."""
    return 8 * eps * sizes.shape[-1] ** 0.5 * (sizes.unsqueeze(-1) + sizes.unsqueeze(-2))


def drop_noise(coupling: Tensor, sizes: Tensor, w: Tensor) -> Tensor:
    r"""Remove skew couplings at rounding level between tied vectors from :math:`V^H\bar V`.

    They carry no information, and :math:`\hat K` would amplify them. Pairs that are not tied are left unchanged.

    Args:
        coupling: :math:`V^H\bar V` (*, d, d).
        sizes: norms of the cotangent's columns (*, d).
        w: eigenvalues or singular values (*, d).
    """
    skew = (coupling - coupling.mH) / 2
    unresolved = tied(w)
    noise = noise_level(sizes, torch.finfo(w.dtype).eps)
    return torch.where(unresolved & (skew.abs() <= noise), coupling - skew, coupling)


def sensitivity(coupling: Tensor, sizes: Tensor, pairs: Tensor) -> Tensor:
    r"""Return the maximum of :math:`|C_{ij}-\bar C_{ji}|/(\|\bar v_i\|+\|\bar v_j\|)\le1` over ``pairs`` (*,)."""
    skew = (coupling - coupling.mH).abs()
    scale = sizes.unsqueeze(-1) + sizes.unsqueeze(-2)
    share = torch.where(pairs & (scale > 0), skew / torch.where(scale > 0, scale, 1), 0)
    return share.amax((-2, -1)) if share.shape[-1] else share.sum((-2, -1))
