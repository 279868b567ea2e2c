"""Spectra ready for a matrix function: eigenpairs without gradient, and which of them are not noise."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .. import solvers
from ..rules.base import norm
from .hermitian import from_lower


class Spectrum(NamedTuple):
    """Eigenvalues (*, d), eigenvectors (*, d, d) and the mask (*, d) of the range."""

    values: Tensor
    vectors: Tensor
    support: Tensor


def positive(A: Tensor, operation: str, rtol: float | None, clamp: bool) -> Spectrum:
    """The spectrum of a matrix that should be positive semi-definite; negative rounding noise becomes zero."""
    w, V = solvers.eigh(A.detach(), operation)
    w, support = positive_part(w, operation, -1.0 if rtol is None else rtol, clamp)
    return Spectrum(w, V, support)


def positive_matrix(A: Tensor, operation: str, clamp: bool) -> Tensor:
    """What a method that never decomposes ``A`` works on: checked, or with its negative part taken off."""
    M = from_lower(A, operation, positive=not clamp)
    if not clamp:
        return M
    w, V = solvers.eigh(M.detach(), operation)
    return M - (V * w.clamp_max(0).unsqueeze(-2)) @ V.mH


def signed(A: Tensor, operation: str, rtol: float | None) -> Spectrum:
    """The spectrum of any Hermitian matrix; all of it unless a rank tolerance is given."""
    w, V = solvers.eigh(A.detach(), operation)
    support = torch.ones_like(w, dtype=torch.bool) if rtol is None else w.abs() > rtol * norm(w).unsqueeze(-1)
    return Spectrum(w, V, support)


@torch.library.custom_op("spectralgrad::positive_part", mutates_args=())
def positive_part(w: Tensor, operation: str, rtol: float, clamp: bool) -> tuple[Tensor, Tensor]:
    """See :func:`spectralgrad.solvers.positive.positive_part`.

    An operator of its own, because an error that depends on data, and tolerances that depend on the size, must
    stay opaque to torch.compile.
    """
    return solvers.positive_part(w, operation, rtol, clamp)


@positive_part.register_fake
def _(w: Tensor, operation: str, rtol: float, clamp: bool) -> tuple[Tensor, Tensor]:
    return torch.empty_like(w), torch.empty_like(w, dtype=torch.bool)


@positive_part.register_vmap
def _(info, in_dims, w, operation, rtol, clamp):  # type: ignore[no-untyped-def]
    return positive_part(w.movedim(in_dims[0], 0), operation, rtol, clamp), (0, 0)
