"""The factors of a polar decomposition, by the fastest route that keeps orthogonality to rounding."""

from __future__ import annotations

import torch
from torch import Tensor

from . import choice
from .ladder import SVD
from .report import counts

_STEEPEST = 1e-4  # float64 has 2e-16: squaring a ratio of 1e-4 costs half of it and leaves float32 untouched


def polar_factors(M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Q, S and Vh of M = (Q V) diag(S) Vh for m ≥ n, Q with orthonormal columns, S descending.

    Single precision goes through the Gram matrix MᴴM in double precision, whose eigenvalues are the squared singular
    values: products and a small eigendecomposition instead of an SVD. If a singular value is too small for that, and
    for double precision, the SVD serves.
    """
    M = SVD.readable(M, "polar")
    if M.dtype == torch.float32 and M.numel() and M.shape[-2] >= M.shape[-1]:
        wide = M.double()
        size = wide.abs().amax((-2, -1), keepdim=True)
        wide = wide / torch.where(size > 0, size, 1)
        w, V = choice.eigh(wide.mT @ wide)
        if bool((w[..., 0] > _STEEPEST**2 * w[..., -1]).all()):
            counts.call(M.shape[:-2].numel())
            s = w.sqrt()
            Q = wide @ ((V / s.unsqueeze(-2)) @ V.mT)
            return Q.float(), (s.flip(-1) * size[..., 0]).float(), V.flip(-1).mT.float().contiguous()
    U, S, Vh = SVD.solve(M, "polar")
    return U @ Vh, S, Vh
