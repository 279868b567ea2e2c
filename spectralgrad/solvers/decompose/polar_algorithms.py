"""The factors of a polar decomposition, by the fastest algorithm that is orthogonal to rounding error."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...dispatch import function
from ...native.functions import in_memory
from ...native.thresholds import table
from ...precision import all_ordinary, magnitude
from ..call_counts import counts
from ..kernel import gradients
from ..products import composed
from . import choice
from .fallbacks import SVD
from .lapack import Factors

# Bounds on the smallest singular value relative to the largest.
_STEEPEST = 1e-4  # squared in the Gram matrix it costs half the digits of float64, which leaves enough for float32
_FLAT = 0.1  # the final product in single precision then loses at most a factor of ten, less than an SVD does
_BLOCK = 64  # columns of the Gram matrix computed at a time
_VOLUMES: dict[int, Callable[..., float]] = {
    2: lambda a, b, c, d: a * d - b * c,
    3: lambda a, b, c, d, e, f, g, h, i: a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g),
}  # determinants, by the number of rows


def polar_factors(M: Tensor, operation: str = "polar") -> tuple[Tensor, Tensor, Tensor]:
    """Return Q, S and Vh with M = (Q V) diag(S) Vh for m ≥ n, where Q has orthonormal columns and S is descending.

    Where the kernel computes singular value decompositions, they come from its SVD, except for tall matrices.
    Elsewhere, in single precision, they come from the eigendecomposition of the Gram matrix MᴴM in double precision,
    whose eigenvalues are the squared singular values; this is faster than LAPACK's SVD. Matrices with too small a
    singular value, and double precision, use the SVD. This last choice is made for each matrix of a batch separately.
    """
    found = by_kernel(M, operation)
    if found is not None:
        return found
    if M.dtype == torch.float32 and M.numel() and M.shape[-2] >= M.shape[-1]:
        M = SVD.readable(M, operation)  # the SVD below checks for itself
        if all_ordinary(M):
            return _by_gram(M)
        size = magnitude(M)  # reciprocals of small singular values would overflow in single precision
        Q, S, Vh = _by_gram(M / size)
        return Q, S * size.squeeze(-1), Vh
    U, S, Vh = SVD.solve(M, operation)
    return _product(U, S, Vh), S, Vh


def by_kernel(M: Tensor, operation: str = "polar") -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the factors of :func:`polar_factors` from the kernel's decomposition; None if it is not the way."""
    if M.dim() < 2 or not M.shape[-1] <= M.shape[-2] < table().tall * M.shape[-1] or choice.singular(M) is None:
        return None
    U, S, Vh = SVD.solve(M, operation)
    return _product(U, S, Vh), S, Vh


def rotations_by_kernel(M: Tensor, operation: str = "polar") -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the factors of :func:`rotations` of real matrices in the same way."""
    if M.dtype.is_complex or M.dim() < 2 or M.shape[-2] != M.shape[-1] or choice.singular(M) is None:
        return None
    U, S, Vh = SVD.solve(M, operation)
    signs = _signs(U, S, Vh)
    return _product(U, S, Vh, signs), S if signs is None else S * signs, Vh


def rotations(M: Tensor, operation: str = "polar") -> tuple[Tensor, Tensor, Tensor]:
    """Return Q, h and Vh with M = Q V diag(h) Vh for square M; det Q = 1, and only the last of h may be negative.

    A complex matrix has no reflections to exclude: its factors come from :func:`polar_factors`, and their determinant
    has modulus one.
    """
    if M.dtype.is_complex or not M.numel():
        return polar_factors(M, operation)
    found = rotations_by_kernel(M, operation)
    if found is not None:
        return found
    Q, S, Vh = polar_factors(M, operation)
    mirrored = (_determinant(Q) < 0).unsqueeze(-1)
    v = Vh[..., -1, :]
    last = (Q * v.unsqueeze(-2)).sum(-1) * torch.where(mirrored, -2, 0)
    h = torch.cat([S[..., :-1], torch.where(mirrored, -S[..., -1:], S[..., -1:])], -1)
    return torch.addcmul(Q, last.unsqueeze(-1), v.unsqueeze(-2)), h, Vh


def _signs(U: Tensor, S: Tensor, Vh: Tensor) -> Tensor | None:
    """Return signs (*, n) by which the columns of U are multiplied to make U Vh a rotation; None if all are 1."""
    n = S.shape[-1]
    if n not in _VOLUMES or S.numel() > table().few:
        signs = torch.ones_like(S)
        signs[..., -1] = (_determinant(U) * _determinant(Vh)).sign()
        return signs
    pairs = zip(*(x.reshape(-1, n * n).tolist() for x in (U, Vh)), strict=True)
    last = [math.copysign(1, _VOLUMES[n](*u) * _VOLUMES[n](*v)) for u, v in pairs]
    if min(last) > 0:
        return None
    return S.new_tensor([[1.0] * (n - 1) + [sign] for sign in last]).reshape(S.shape)


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


def _product(U: Tensor, S: Tensor, Vh: Tensor, signs: Tensor | None = None) -> Tensor:
    """Return U diag(signs) Vh. It is the gradient of a sum of singular values, and so the kernel can compute it."""
    if max(U.shape[-2], Vh.shape[-1]) <= table().polar and function.eager(U, Vh):
        slopes = torch.ones_like(S) if signs is None else signs
        by_kernel = gradients.svd_gradient((U, S, Vh), (None, slopes, None), lambda _: 0.0, False, False)
        if by_kernel is not None:
            return by_kernel
    return U @ Vh if signs is None else composed(U, signs, Vh)


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
