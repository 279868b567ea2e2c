"""Eigenvalues, singular values and the norms made of them, for the replacements of torch's functions."""

from __future__ import annotations

import torch
from torch import Tensor

from ..autograd.pairwise import norm
from ..linalg.decompositions import eigh, svd
from ..precision import rank_tolerance, working_dtype
from ..rules import Method


def eigvalsh(A: Tensor, method: Method) -> Tensor:
    """Return the ascending eigenvalues (*, d) of Hermitian matrices."""
    return eigh(A, method=method).eigenvalues


def svdvals(M: Tensor, method: Method) -> Tensor:
    """Return the descending singular values (*, k)."""
    return svd(M, method=method).S


def nuclear_norm(M: Tensor, method: Method) -> Tensor:
    """Return the sum of the singular values (*,).

    Those that vanish carry no gradient: the gradient is U Vᴴ on the range, the subgradient of smallest norm.
    """
    S = svdvals(M, method)
    if not S.shape[-1]:
        return S.sum(-1)
    tolerance = rank_tolerance(max(M.shape[-2:]), working_dtype(M.dtype))
    return torch.where(S > tolerance * norm(S.detach()).unsqueeze(-1), S, S.detach()).sum(-1)


def spectral_norm(M: Tensor, method: Method) -> Tensor:
    """Return the largest singular value (*,); several that are equal share the gradient."""
    return svdvals(M, method).amax(-1)


def smallest_singular_value(M: Tensor, method: Method) -> Tensor:
    """Return the smallest singular value (*,); several that are equal share the gradient."""
    return svdvals(M, method).amin(-1)
