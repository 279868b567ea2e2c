"""The norms made of singular values, for the replacements of torch's functions."""

from __future__ import annotations

import torch
from torch import Tensor

from ..autograd.pairwise import norm
from ..linalg.eigenvalues import svdvals
from ..precision import rank_tolerance, working_dtype


def nuclear_norm(M: Tensor) -> Tensor:
    """Return the sum of the singular values (*,).

    Those that vanish carry no gradient: the gradient is U Vᴴ on the range, the subgradient of smallest norm.
    """
    S = svdvals(M)
    if not S.shape[-1]:
        return S.sum(-1)
    tolerance = rank_tolerance(max(M.shape[-2:]), working_dtype(M.dtype))
    return torch.where(S > tolerance * norm(S.detach()).unsqueeze(-1), S, S.detach()).sum(-1)


def spectral_norm(M: Tensor) -> Tensor:
    """Return the largest singular value (*,); several that are equal share the gradient."""
    return svdvals(M).amax(-1)


def smallest_singular_value(M: Tensor) -> Tensor:
    """Return the smallest singular value (*,); several that are equal share the gradient."""
    return svdvals(M).amin(-1)
