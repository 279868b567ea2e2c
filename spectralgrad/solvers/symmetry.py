"""Hermitian matrices from their lower triangle, as torch.linalg reads them, and the checks that a solver would make."""

from __future__ import annotations

import torch
from torch import Tensor

from ..dispatch.torch_internals import conjugates_applied
from ..errors import IndefiniteError, NonFiniteError, batch_positions
from ..precision import negative_tolerance, resolved


def hermitian(G: Tensor) -> Tensor:
    """Return the Hermitian part (G + Gᴴ)/2."""
    return (G + G.mH) / 2


def mirrored(A: Tensor) -> Tensor:
    """Return the Hermitian matrix with the lower triangle of ``A``; imaginary parts on the diagonal are ignored."""
    if not A.dtype.is_complex:
        lower = torch.ones(A.shape[-2:], dtype=torch.bool, device=A.device).tril()
        return torch.where(lower, A, A.mT)  # one pass over the batch
    below = A.tril(-1)
    return below + below.mH + torch.diag_embed(A.diagonal(dim1=-2, dim2=-1).real).to(A.dtype)


@torch.library.custom_op("spectralgrad::checked_hermitian", mutates_args=())
def checked_hermitian(A: Tensor, operation: str, positive: bool) -> Tensor:
    """Return the mirrored matrix after checking it; an operator, so that torch.compile need not trace the checks."""
    with conjugates_applied():
        M = mirrored(A)
    bad = ~torch.isfinite(M).flatten(-2).all(-1)
    if bool(bad.any()):
        raise NonFiniteError(batch_positions(bad), A.shape[:-2], operation)
    if positive and M.numel():
        _refuse_indefinite(M, operation)
    return M


@checked_hermitian.register_fake
def _(A: Tensor, operation: str, positive: bool) -> Tensor:
    return torch.empty_like(A, memory_format=torch.contiguous_format)


@checked_hermitian.register_vmap
def _(info, in_dims, A, operation, positive):  # type: ignore[no-untyped-def]
    return checked_hermitian(A.movedim(in_dims[0], 0), operation, positive), 0


@torch.library.custom_op("spectralgrad::checked_finite", mutates_args=())
def checked_finite(M: Tensor, operation: str) -> Tensor:
    """Return a copy of general matrices after checking that they are finite; an operator for the same reason."""
    bad = ~torch.isfinite(M).flatten(-2).all(-1)
    if bool(bad.any()):
        raise NonFiniteError(batch_positions(bad), M.shape[:-2], operation)
    return M.clone(memory_format=torch.contiguous_format)


@checked_finite.register_fake
def _(M: Tensor, operation: str) -> Tensor:
    return torch.empty_like(M, memory_format=torch.contiguous_format)


@checked_finite.register_vmap
def _(info, in_dims, M, operation):  # type: ignore[no-untyped-def]
    return checked_finite(M.movedim(in_dims[0], 0), operation), 0


def _refuse_indefinite(M: Tensor, operation: str) -> None:
    """Raise :class:`IndefiniteError` for matrices that are indefinite beyond rounding error.

    A Cholesky factorisation of the slightly shifted matrix is cheaper than eigenvalues, which are computed only for
    matrices on which it fails.
    """
    tolerance = negative_tolerance(M.shape[-1], M.dtype)
    size = M.abs().amax((-2, -1))
    scaled = M / torch.where(size > 0, resolved(size), 1)[..., None, None]
    shift = tolerance * torch.eye(M.shape[-1], dtype=M.dtype, device=M.device)
    for position in batch_positions(torch.linalg.cholesky_ex(scaled + shift).info != 0):
        w = torch.linalg.eigvalsh(M[position])
        limit = tolerance * float(resolved(w.abs().amax()))
        if float(w[0]) < -limit:
            raise IndefiniteError(float(w[0]), position, operation, limit)
