"""Spectra ready for a matrix function: eigenpairs without gradient, and which of them are not noise."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from . import solvers
from .errors import IndefiniteError, batch_positions
from .hermitian import from_lower
from .methods.base import norm
from .precision import rank_tolerance

_CLEARLY = 64  # an eigenvalue this many rank tolerances below zero is not rounding


class Spectrum(NamedTuple):
    """Eigenvalues (*, d), eigenvectors (*, d, d) and the mask (*, d) of the range."""

    values: Tensor
    vectors: Tensor
    support: Tensor


def default_tolerance(A: Tensor) -> float:
    """The relative rank tolerance used where none is given."""
    return rank_tolerance(A.shape[-1], A.dtype)


def positive(A: Tensor, operation: str, rtol: float | None, clamp: bool) -> Spectrum:
    """The spectrum of a matrix that should be positive semi-definite; negative rounding noise becomes zero."""
    w, V = solvers.eigh(A.detach(), operation)
    w = w.clamp_min(0) if clamp else nonnegative(w, _CLEARLY * default_tolerance(A), operation)
    tolerance = default_tolerance(A) if rtol is None else rtol
    return Spectrum(w, V, w > tolerance * norm(w).unsqueeze(-1))


def positive_matrix(A: Tensor, operation: str, clamp: bool) -> Tensor:
    """What a method that never decomposes ``A`` works on: checked, or with its negative part taken off."""
    if not clamp:
        return from_lower(A, operation, _CLEARLY * default_tolerance(A))
    M = from_lower(A, operation)
    w, V = solvers.eigh(M.detach(), operation)
    return M - (V * w.clamp_max(0).unsqueeze(-2)) @ V.mH


def signed(A: Tensor, operation: str, rtol: float | None) -> Spectrum:
    """The spectrum of any Hermitian matrix; all of it unless a rank tolerance is given."""
    w, V = solvers.eigh(A.detach(), operation)
    support = torch.ones_like(w, dtype=torch.bool) if rtol is None else w.abs() > rtol * norm(w).unsqueeze(-1)
    return Spectrum(w, V, support)


@torch.library.custom_op("spectralgrad::nonnegative", mutates_args=())
def nonnegative(w: Tensor, tolerance: float, operation: str) -> Tensor:
    """``w`` with negative rounding noise set to zero; an error if an eigenvalue is clearly negative.

    An operator of its own, because an error that depends on data must stay opaque to torch.compile.
    """
    limit = tolerance * norm(w)
    if w.numel():
        bad = w.amin(-1) < -limit
        if bool(bad.any()):
            position = batch_positions(bad)[0]
            raise IndefiniteError(float(w[position].amin()), position, operation, float(limit[position]))
    return w.clamp_min(0)


@nonnegative.register_fake
def _(w: Tensor, tolerance: float, operation: str) -> Tensor:
    return torch.empty_like(w)


@nonnegative.register_vmap
def _(info, in_dims, w, tolerance, operation):  # type: ignore[no-untyped-def]
    return nonnegative(w.movedim(in_dims[0], 0), tolerance, operation), 0
