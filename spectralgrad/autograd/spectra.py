"""Spectra ready for a matrix function: eigenpairs without gradient, and which of them are not noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .. import solvers
from .hermitian import from_lower
from .pairwise import norm


class Spectrum(NamedTuple):
    """Eigenvalues (*, d), eigenvectors (*, d, d) and the mask (*, d) of the range."""

    values: Tensor
    vectors: Tensor
    support: Tensor


@dataclass(frozen=True)
class Domain:
    """Which matrices a function takes, and on which part of their spectrum it is taken.

    Attributes:
        operation: the function's name in errors.
        positive: only positive semi-definite matrices, on their range; otherwise any sign of eigenvalue.
        rtol: relative rank tolerance. None is the default one for positive matrices, and the whole spectrum for others.
        clamp: set negative eigenvalues to zero instead of raising :class:`IndefiniteError`.
    """

    operation: str
    positive: bool = True
    rtol: float | None = None
    clamp: bool = False

    def spectrum(self, A: Tensor) -> Spectrum:
        """The solver's eigenpairs without gradient; negative rounding noise of a positive matrix becomes zero."""
        w, V = solvers.eigh(A.detach(), self.operation)
        if self.positive:
            w, support = positive_part(w, self.operation, self.solver_rtol, self.clamp)
            return Spectrum(w, V, support)
        if self.rtol is None:
            return Spectrum(w, V, torch.ones_like(w, dtype=torch.bool))
        return Spectrum(w, V, w.abs() > self.rtol * norm(w).unsqueeze(-1))

    def matrix(self, A: Tensor) -> Tensor:
        """What a method without the solver's eigenpairs works on: ``A`` checked, or its negative part taken off."""
        M = from_lower(A, self.operation, positive=self.positive and not self.clamp)
        if not self.clamp:
            return M
        w, V = solvers.eigh(M.detach(), self.operation)
        return M - (V * w.clamp_max(0).unsqueeze(-2)) @ V.mH

    @property
    def solver_rtol(self) -> float:
        """The tolerance as operators take it: a number, negative for the default."""
        return -1.0 if self.rtol is None else float(self.rtol)


@torch.library.custom_op("spectralgrad::positive_part", mutates_args=())
def positive_part(w: Tensor, operation: str, rtol: float, clamp: bool) -> tuple[Tensor, Tensor]:
    """See :func:`spectralgrad.solvers.fused.positive_part`.

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
