"""Hermitian matrices from their lower triangle, as torch.linalg reads them, and the checks that a solver would make."""

from __future__ import annotations

import torch
from torch import Tensor

from ..dispatch import status
from ..dispatch.custom_operators import custom_operator, fake_rule, vmap_rule
from ..dispatch.torch_internals import conjugates_applied
from ..errors import AsymmetricError, IndefiniteError, NonFiniteError, batch_positions
from ..precision import asymmetry_tolerance, largest, negative_tolerance, rank_tolerance, resolved


def hermitian(G: Tensor) -> Tensor:
    """Return the Hermitian part (G + Gᴴ)/2; infinite entries of Hermitian matrices stay infinite."""
    if G.dtype.is_complex:  # sums and quotients of complex numbers turn ∞ into NaN
        real, imaginary = G.real / 2, G.imag / 2
        return torch.complex(real + real.mT, imaginary - imaginary.mT)
    half = G / 2
    return half + half.mT


def mirrored(A: Tensor) -> Tensor:
    """Return the Hermitian matrix with the lower triangle of ``A``; imaginary parts on the diagonal are ignored."""
    if not A.dtype.is_complex:
        lower = torch.ones(A.shape[-2:], dtype=torch.bool, device=A.device).tril()
        return torch.where(lower, A, A.mT)  # one pass over the batch
    below = A.tril(-1)
    return below + below.mH + torch.diag_embed(A.diagonal(dim1=-2, dim2=-1).real).to(A.dtype)


def not_finite(batch: torch.Size, *tensors: Tensor) -> Tensor:
    """True (*,) where one of the tensors (*, ...) has an entry that is not finite."""
    sizes = [largest(x, x.dim() - len(batch)) for x in tensors]
    return ~(sum(sizes[1:], sizes[0]) < torch.inf)


def asymmetric(A: Tensor, dtype: torch.dtype) -> Tensor:
    """True (*,) for matrices that :func:`refuse_asymmetric` would refuse, and perhaps close to overflow."""
    return ~(largest(A - A.mH) <= asymmetry_tolerance(dtype) * resolved(largest(A)))  # also for NaN


def refuse_asymmetric(A: Tensor, operation: str, dtype: torch.dtype | None) -> None:
    """Raise an error for matrices that are not finite, or asymmetric far beyond the rounding error of ``dtype``.

    None stands for matrices that need no check. The kernel makes the same comparison while it reads them.
    """
    if dtype is None or not A.numel():
        return
    if status.optimistic(A):
        status.suspected(asymmetric(A, dtype))
        return
    bad = ~torch.isfinite(A).flatten(-2).all(-1)
    if status.suspected(bad):
        raise NonFiniteError(batch_positions(bad), A.shape[:-2], operation)
    limit, size = asymmetry_tolerance(dtype), resolved(largest(A))[..., None, None]
    ratio = largest(A / size - (A / size).mH)  # of the scaled matrices, whose difference does not overflow
    for position in status.positions(ratio > limit)[:1]:
        raise AsymmetricError(float(ratio[position]), position, operation, limit)


@custom_operator
def checked_hermitian(A: Tensor, operation: str, positive: bool, dtype: torch.dtype | None = None) -> Tensor:
    """Return the mirrored matrix after checking it; an operator, so that torch.compile need not trace the checks."""
    with conjugates_applied():
        refuse_asymmetric(A, operation, dtype)
        M = mirrored(A)
    bad = ~torch.isfinite(M).flatten(-2).all(-1)
    if status.suspected(bad):
        raise NonFiniteError(batch_positions(bad), A.shape[:-2], operation)
    if positive and M.numel():
        _remove_noise(M, operation, dtype)
    return M


@fake_rule(checked_hermitian)
def _(A: Tensor, operation: str, positive: bool, dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty_like(A, memory_format=torch.contiguous_format)


@vmap_rule(checked_hermitian)
def _(info, in_dims, A, *settings):  # type: ignore[no-untyped-def]
    return checked_hermitian(A.movedim(in_dims[0], 0), *settings), 0


@custom_operator
def checked_finite(M: Tensor, operation: str) -> Tensor:
    """Return a copy of general matrices after checking that they are finite; an operator for the same reason."""
    bad = ~torch.isfinite(M).flatten(-2).all(-1)
    if status.suspected(bad):
        raise NonFiniteError(batch_positions(bad), M.shape[:-2], operation)
    return M.clone(memory_format=torch.contiguous_format)


@fake_rule(checked_finite)
def _(M: Tensor, operation: str) -> Tensor:
    return torch.empty_like(M, memory_format=torch.contiguous_format)


@vmap_rule(checked_finite)
def _(info, in_dims, M, operation):  # type: ignore[no-untyped-def]
    return checked_finite(M.movedim(in_dims[0], 0), operation), 0


def _remove_noise(M: Tensor, operation: str, dtype: torch.dtype | None) -> None:
    """Raise :class:`IndefiniteError` for matrices that are indefinite beyond rounding error of ``dtype``.

    Iterations diverge on negative eigenvalues of the size that rounding to a half type leaves, so these are removed.
    A Cholesky factorisation of the slightly shifted matrix is cheaper than eigenvalues, which are computed only for
    matrices on which it fails.
    """
    tolerance = negative_tolerance(M.shape[-1], M.dtype)
    size = M.abs().amax((-2, -1))
    scaled = M / torch.where(size > 0, resolved(size), 1)[..., None, None]
    shift = tolerance * torch.eye(M.shape[-1], dtype=M.dtype, device=M.device)
    for position in status.positions(torch.linalg.cholesky_ex(scaled + shift).info != 0):
        w, V = torch.linalg.eigh(M[position])
        refuse_negative(w, w.abs().amax(), operation, dtype or M.dtype, position)
        level = noise(w, w.abs().amax())
        M[position] -= (V * torch.where((w <= level) & (level > 0), w, 0)) @ V.mH


def refuse_negative(
    w: Tensor, size: Tensor, operation: str, dtype: torch.dtype, where: tuple[int, ...] | None = None
) -> None:
    """Raise :class:`IndefiniteError` for eigenvalues (*, d) that are negative beyond the rounding error of ``dtype``.

    ``size`` (*,) is the largest in modulus; ``where`` is the batch position, if the caller selected one matrix.
    """
    limit = negative_tolerance(w.shape[-1], dtype) * resolved(size)
    for at in status.positions(w.amin(-1) < -limit)[:1]:
        position = at if where is None else where
        raise IndefiniteError(float(w[at].amin()), position, operation, float(limit[at]), dtype)


def noise(w: Tensor, size: Tensor) -> Tensor:
    """Return the level (*,) up to which eigenvalues of a matrix that was rounded to a half type are rounding error.

    It is twice the most negative eigenvalue, if that is not zero to rounding error in the type of ``w``: rounding
    spreads zero eigenvalues to both sides of zero alike. Otherwise it is zero.
    """
    lowest = -w.amin(-1)
    return torch.where(lowest > rank_tolerance(w.shape[-1], w.dtype) * resolved(size), 2 * lowest, 0)
