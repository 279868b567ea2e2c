"""What a spectrum says about gradients: conditioning, rank, gaps and ties."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..autograd import gauge
from ..autograd.pairwise import differences, identity_mask, norm
from ..precision import rank_tolerance


class Spectrum(NamedTuple):
    """Quantities (*,) with one entry per matrix."""

    norm: Tensor  # |λ|max
    condition: Tensor  # |λ|max/|λ|min
    rank: Tensor  # numerical rank
    relative_gap: Tensor  # min |λi − λj|/‖A‖
    ties: Tensor  # number of pairs whose vectors are not determined by the matrix: gap ≤ 64 ε ‖A‖
    noise: Tensor  # ε‖A‖/gap over the resolved pairs


def spectrum(w: Tensor) -> Spectrum:
    """Return the :class:`Spectrum` of eigenvalues or singular values (*, d)."""
    size, eps = norm(w), torch.finfo(w.dtype).eps
    upper = torch.ones_like(identity_mask(w)).triu(1)
    gap = torch.where(upper, differences(w).abs(), torch.inf)
    unresolved = gauge.tied(w) & upper
    resolved = torch.where(unresolved, torch.inf, gap)
    spread = w.abs().amin(-1) if w.shape[-1] else size
    return Spectrum(
        norm=size,
        condition=size / spread,
        rank=(w.abs() > rank_tolerance(w.shape[-1], w.dtype) * size.unsqueeze(-1)).sum(-1),
        relative_gap=ratio(_smallest(gap), size),
        ties=unresolved.sum((-2, -1)),
        noise=eps * size / _smallest(resolved),
    )


def ratio(x: Tensor, size: Tensor) -> Tensor:
    """Return x/size, and 0 where ``size`` is 0."""
    return torch.where(size > 0, x / torch.where(size > 0, size, 1), 0)


def _smallest(x: Tensor) -> Tensor:
    return x.amin((-2, -1)) if x.shape[-1] else x.new_full(x.shape[:-2], torch.inf)
