"""The factors of a polar decomposition, by the fastest algorithm that is orthogonal to rounding error."""

from __future__ import annotations

import torch
from torch import Tensor

from ...native.functions import in_memory
from ...native.thresholds import table
from ...precision import all_ordinary, magnitude, rank_tolerance
from ..call_counts import counts
from . import choice
from .fallbacks import SVD
from .lapack import Factors

# Bounds on the smallest singular value relative to the largest.
_STEEPEST = 1e-4  # squared in the Gram matrix it costs half the digits of float64, which leaves enough for float32
_FLAT = 0.1  # the final product in single precision then loses at most a factor of ten, less than an SVD does
_BLOCK = 64  # columns of the Gram matrix computed at a time


def polar_factors(M: Tensor, operation: str = "polar", rtol: float = -1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Return Q, h and Vh with M = Q V diag(h) Vh for m ≥ n, where Q has orthonormal columns and h is descending.

    Where the kernel computes singular value decompositions, they come from its SVD, except for tall matrices; on an
    accelerator they come from the SVD there. Elsewhere, in single precision, they come from the eigendecomposition of
    the Gram matrix MᴴM in double precision, whose eigenvalues are the squared singular values; this is faster than
    LAPACK's SVD. Matrices with too small a singular value, and double precision, use the SVD. This last choice is made
    for each matrix of a batch separately.

    Args:
        M: matrices (*, m, n).
        operation: name used in error messages.
        rtol: eigenvalues up to this multiple of the largest are zero; if negative, the default rank tolerance.
    """
    found = by_kernel(M, operation, rtol)
    if found is not None:
        return found
    return _finished(*_factors(M, operation), _tolerance(M, rtol), False)


def rotations(M: Tensor, operation: str = "polar", rtol: float = -1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Return Q, h and Vh with M = Q V diag(h) Vh for square M; det Q = 1, and only the last of h may be negative.

    It is the negative of the one before it where their sum is negligible, so that the weight of the pair is zero. A
    complex matrix has no reflections to exclude: its factors come from :func:`polar_factors`, and their determinant
    has modulus one.
    """
    if M.dtype.is_complex or not M.numel():
        return polar_factors(M, operation, rtol)
    found = rotations_by_kernel(M, operation, rtol)
    if found is not None:
        return found
    return _finished(*_factors(M, operation), _tolerance(M, rtol), True)


def by_kernel(
    M: Tensor, operation: str = "polar", rtol: float = -1.0, special: bool = False
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the factors of :func:`polar_factors` in one call of the kernel, or None if it is not the way."""
    fits = M.dim() > 1 and M.shape[-1] <= M.shape[-2] <= table().polar and M.shape[-2] < table().tall * M.shape[-1]
    plan = choice.singular(M, "polar") if fits and not M.dtype.is_complex else None
    if plan is None:
        return None
    factors, failed = plan.polar(in_memory(M), special, _tolerance(M, rtol))
    counts.call(plan.batch - failed)
    if failed:  # the others keep their values, which do not depend on these
        SVD.readable(M, operation)
        at = factors[1].isnan().any(-1)
        for factor, part in zip(
            factors, _finished(*_by_svd(M[at], operation), _tolerance(M, rtol), special), strict=True
        ):
            factor[at] = part
    return factors


def rotations_by_kernel(
    M: Tensor, operation: str = "polar", rtol: float = -1.0
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the factors of :func:`rotations` of real matrices in the same way."""
    return by_kernel(M, operation, rtol, True) if M.dim() > 1 and M.shape[-2] == M.shape[-1] else None


def _determinant(Q: Tensor) -> Tensor:
    """Return the determinants (*,), for three rows and less by their formula, which is faster than a factorisation."""
    if Q.shape[-1] > 3:
        return torch.linalg.det(Q)
    if Q.shape[-1] == 1:
        return Q[..., 0, 0]
    rows = Q.unbind(-2)
    if len(rows) == 2:
        return rows[0][..., 0] * rows[1][..., 1] - rows[0][..., 1] * rows[1][..., 0]
    return (rows[0] * torch.linalg.cross(rows[1], rows[2])).sum(-1)


def _tolerance(M: Tensor, rtol: float) -> float:
    return rank_tolerance(M.shape[-2], M.dtype) if rtol < 0 else rtol


def _finished(Q: Tensor, S: Tensor, Vh: Tensor, tolerance: float, special: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return Q, h and Vh of the polar factor Q, or of the nearest rotation, from singular values."""
    least = tolerance * S[..., :1]
    h = torch.where(least < S, S, 0)
    if not special:
        return Q, h, Vh
    v, signs = Vh[..., -1, :], _determinant(Q).sign().unsqueeze(-1)
    Q = torch.addcmul(Q, (Q * v.unsqueeze(-2)).sum(-1, keepdim=True) * (signs - 1).unsqueeze(-1), v.unsqueeze(-2))
    before, last = h[..., -2:-1], h[..., -1:] * signs
    if h.shape[-1] > 1:
        last = torch.where(before + last > least, last, -before)
    return Q, torch.cat([h[..., :-1], last], -1), Vh


def _factors(M: Tensor, operation: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return the polar factor, singular values and right vectors by the fastest algorithm outside the kernel."""
    m, n = M.shape[-2:]
    by_gram = M.is_cpu and (m >= table().tall * n or choice.singular(M) is None)
    if not (by_gram and M.dtype == torch.float32 and M.numel() and m >= n):
        return _by_svd(M, operation)
    M = SVD.readable(M, operation)  # the SVD below checks for itself
    if all_ordinary(M):
        return _by_gram(M)
    size = magnitude(M)  # reciprocals of small singular values would overflow in single precision
    Q, S, Vh = _by_gram(M / size)
    return Q, S * size.squeeze(-1), Vh


def _by_svd(M: Tensor, operation: str) -> tuple[Tensor, Tensor, Tensor]:
    U, S, Vh = SVD.solve(M, operation)
    return U @ Vh, S, Vh


def _by_gram(M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the factors from the Gram matrix.

    Products are always taken over the whole batch, and each matrix selects its own: the rounding of BLAS depends on the
    size of a batch and the position in it, and a result must not depend on the other matrices.
    """
    wide = M.double()  # squares of single-precision numbers neither overflow nor underflow in double precision
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
        U[~suits], S[~suits], Vh[~suits] = _svd_of_some(M, ~suits)
        Q = torch.where(suits[..., None, None], Q, U @ Vh)
    return Q, S, Vh


def _svd_of_some(M: Tensor, which: Tensor) -> Factors:
    """Decompose part of a batch by the solver for the whole batch, so that results do not depend on the rest."""
    part = M[which]
    plan = choice.singular_part(part, M)
    if plan is None:
        return SVD.solve(part, "polar")
    counts.call(len(part))
    factors, failed = plan.svd(in_memory(part))
    if failed:
        SVD.repair(part, factors, "polar")
    return factors


def _lower_gram(M: Tensor) -> Tensor:
    """Return MᵀM with zeros in the blocks above the diagonal; only the lower triangle is read."""
    return M.mT @ M if M.shape[-1] < table().gram_blocks else in_blocks(M)


def in_blocks(M: Tensor) -> Tensor:
    """Return MᵀM with zeros in the blocks above the diagonal."""
    n = M.shape[-1]
    G = M.new_zeros(*M.shape[:-2], n, n)
    for start in range(0, n, _BLOCK):
        stop = min(n, start + _BLOCK)
        G[..., start:stop, :stop] = M[..., start:stop].mT @ M[..., :stop]
    return G
