"""The factors of a polar decomposition, by the fastest route that keeps orthogonality to rounding."""

from __future__ import annotations

import torch
from torch import Tensor

from . import choice
from .ladder import SVD
from .report import counts

_STEEPEST = 1e-4  # float64 has 2e-16: squaring a ratio of 1e-4 costs half of it and leaves float32 untouched
_FLAT = 0.1  # above this ratio a product in single precision costs at most ten roundings, less than an SVD does
_BLOCK = 64  # columns of the Gram matrix formed at a time


def polar_factors(M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Q, S and Vh of M = (Q V) diag(S) Vh for m ≥ n, Q with orthonormal columns, S descending.

    Single precision goes through the Gram matrix MᴴM in double precision, whose eigenvalues are the squared singular
    values: products and a small eigendecomposition instead of an SVD. If a singular value is too small for that, and
    for double precision, the SVD serves.
    """
    M = SVD.readable(M, "polar")
    if M.dtype == torch.float32 and M.numel() and M.shape[-2] >= M.shape[-1]:
        wide = M.double()  # squares of single-precision numbers neither overflow nor vanish there
        w, V = choice.eigh(_lower_gram(wide))
        if bool((w[..., 0] > _STEEPEST**2 * w[..., -1]).all()):
            counts.call(M.shape[:-2].numel())
            s = w.sqrt()
            inverse = (V / s.unsqueeze(-2)) @ V.mT
            flat = bool((s[..., 0] > _FLAT * s[..., -1]).all())
            Q = M @ inverse.float() if flat else (wide @ inverse).float()
            return Q, s.flip(-1).float(), V.flip(-1).mT.float().contiguous()
    U, S, Vh = SVD.solve(M, "polar")
    return U @ Vh, S, Vh


def _lower_gram(M: Tensor) -> Tensor:
    """MᵀM, of which only the lower triangle will be read: blocks above it are left zero."""
    n = M.shape[-1]
    if n < 2 * _BLOCK:
        return M.mT @ M
    G = M.new_zeros(*M.shape[:-2], n, n)
    for start in range(0, n, _BLOCK):
        stop = min(n, start + _BLOCK)
        G[..., start:stop, :stop] = M[..., start:stop].mT @ M[..., :stop]
    return G
