"""The factors of a polar decomposition, by the fastest route that keeps orthogonality to rounding."""

from __future__ import annotations

import torch
from torch import Tensor

from ..precision import magnitude, ordinary
from . import choice
from .ladder import SVD
from .statistics import counts

_STEEPEST = 1e-4  # float64 has 2e-16: squaring a ratio of 1e-4 costs half of it and leaves float32 untouched
_FLAT = 0.1  # above this ratio a product in single precision costs at most ten roundings, less than an SVD does
_BLOCK = 64  # columns of the Gram matrix formed at a time


def polar_factors(M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Q, S and Vh of M = (Q V) diag(S) Vh for m ≥ n, Q with orthonormal columns, S descending.

    Single precision goes through the Gram matrix MᴴM in double precision, whose eigenvalues are the squared singular
    values: products and a small eigendecomposition instead of an SVD. The SVD serves matrices with a singular value
    too small for that, and double precision. Each matrix goes the way that its own singular values name.
    """
    if M.dtype == torch.float32 and M.numel() and M.shape[-2] >= M.shape[-1]:
        M = SVD.readable(M, "polar")  # the SVD below checks for itself
        if bool(ordinary(M).all()):
            return _by_gram(M)
        size = magnitude(M)  # reciprocals of small singular values are beyond single precision
        Q, S, Vh = _by_gram(M / size)
        return Q, S * size.squeeze(-1), Vh
    U, S, Vh = SVD.solve(M, "polar")
    return U @ Vh, S, Vh


def _by_gram(M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Products are always those of the whole batch, of which each matrix takes its own: BLAS sees sizes and places."""
    wide = M.double()  # squares of single-precision numbers neither overflow nor vanish there
    w, V = choice.eigh(_lower_gram(wide))
    suits = w[..., 0] > _STEEPEST**2 * w[..., -1]
    flat = suits & (w[..., 0] > _FLAT**2 * w[..., -1])
    s = w.clamp_min(0).sqrt()
    inverse = (V / s.unsqueeze(-2)) @ V.mT
    S, Vh = s.flip(-1).float(), V.flip(-1).mT.float().contiguous()
    if bool(suits.any()):
        counts.call(int(suits.sum()))
    if bool(flat.all()):
        return M @ inverse.float(), S, Vh
    Q = (wide @ inverse).float()
    if bool(flat.any()):
        Q = torch.where(flat[..., None, None], M @ inverse.float(), Q)
    if not bool(suits.all()):
        U = torch.zeros_like(M)
        U[~suits], S[~suits], Vh[~suits] = SVD.solve(M[~suits], "polar")
        Q = torch.where(suits[..., None, None], Q, U @ Vh)
    return Q, S, Vh


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
