"""Eigenpairs without gradient for matrix functions, with the mask of the range, and the checks of the domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import status
from ...dispatch.arguments import check_tolerance
from ...dispatch.custom_operators import custom_operator, fake_rule, vmap_rule
from ...errors import ArgumentError
from ...precision import negative_tolerance, rounded_to
from ...solvers.decompose.operators import Operator
from ...solvers.products import composed
from ..hermitian import from_lower
from ..pairwise import norm


class Spectrum(NamedTuple):
    """Eigenvalues (*, d), eigenvectors (*, d, d) and the mask (*, d) of the range."""

    values: Tensor
    vectors: Tensor
    support: Tensor


@dataclass(frozen=True)
class Domain:
    """Which matrices a function accepts, and the part of their spectrum to which it is applied.

    Attributes:
        operation: name of the function in error messages.
        positive: accept only positive semi-definite matrices and apply the function on their range; otherwise
            eigenvalues may have either sign.
        rtol: relative rank tolerance. None selects the default tolerance if ``positive``, and otherwise applies the
            function to the whole spectrum.
        clamp: set negative eigenvalues to zero instead of raising :class:`IndefiniteError`.
        dtype: the type whose rounding error the caller's matrices contain, from
            :func:`spectralgrad.precision.rounded_to`, beyond which asymmetry is an error; None for matrices computed
            here, which are Hermitian and rounded in the type that they have.
    """

    operation: str
    positive: bool = True
    rtol: float | None = None
    clamp: bool = False
    dtype: torch.dtype | None = None

    def spectrum(self, A: Tensor) -> Spectrum:
        """Return the solver's eigenpairs without gradient; if ``positive``, negative rounding errors become zero."""
        w, V = solvers.eigh(A.detach(), self.operation, self.dtype)
        if self.positive:
            w, support = positive_part(w, self.operation, self.solver_rtol, self.clamp, self.dtype)
            return Spectrum(w, V, support)
        if self.rtol is None:
            return Spectrum(w, V, torch.ones_like(w, dtype=torch.bool))
        return Spectrum(w, V, w.abs() > self.rtol * norm(w).unsqueeze(-1))

    def matrix(self, A: Tensor) -> Tensor:
        """Return ``A`` after the checks, for methods that need no eigenpairs; ``clamp`` removes its negative part."""
        M = from_lower(A, self.operation, self.positive and not self.clamp, self.dtype)
        if not self.clamp:
            return M
        w, V = solvers.eigh(M.detach(), self.operation)
        return M - composed(V, w.clamp_max(0), V.mH)

    @classmethod
    def of(cls, A: Tensor, operation: str, rtol: float | None, clamp: bool, positive: bool = True) -> Domain:
        """Return the domain of a function of the caller's matrices; ``rtol`` is checked."""
        check_tolerance(rtol, operation)
        return cls(operation, positive, rtol, clamp, rounded_to(A))

    @property
    def solver_rtol(self) -> float:
        """The tolerance as the operators expect it: a number, negative for the default."""
        return -1.0 if self.rtol is None else float(self.rtol)


@Operator
def positive_part(
    w: Tensor, operation: str, rtol: float, clamp: bool, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """See :func:`spectralgrad.solvers.kernel.roots.positive_part`.

    It is an operator because torch.compile cannot trace errors that depend on data or tolerances that depend on sizes.
    """
    return solvers.positive_part(w, operation, rtol, clamp, dtype)


@fake_rule(positive_part.operator)
def _(w: Tensor, operation: str, rtol: float, clamp: bool, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    return torch.empty_like(w), torch.empty_like(w, dtype=torch.bool)


@vmap_rule(positive_part.operator)
def _(info, in_dims, w, *settings):  # type: ignore[no-untyped-def]
    return positive_part(w.movedim(in_dims[0], 0), *settings), (0, 0)


@custom_operator
def same_range(
    s: Tensor, V: Tensor, t: Tensor, W: Tensor, operation: str, rtol: float, dtype: torch.dtype | None = None
) -> Tensor:
    """Raise :class:`ArgumentError` unless two matrices have the same range; return True (*,) for each pair.

    ``s`` and ``t`` (*, d) are the roots √λ, zero off the range, and ``V`` and ``W`` the eigenvectors. Rounding errors
    turn a range by about ε times the condition number on it, so that much is allowed. This is an operator for the same
    reason as :func:`positive_part`; a caller has to use the result, or torch.compile removes the call.
    """
    agree = torch.ones(s.shape[:-1], dtype=torch.bool, device=s.device)
    if not status.optimistic(s) and bool((s > 0).all()) and bool((t > 0).all()):  # also if they are empty
        return agree
    if status.assumed(s):  # full rank
        status.suspected((s == 0) | (t == 0))
        return agree
    ranks = (s > 0).sum(-1), (t > 0).sum(-1)
    tolerance = max(negative_tolerance(s.shape[-1], dtype or s.dtype), rtol)
    sines = norm(((V * (s == 0).unsqueeze(-2)).mH @ (W * (t > 0).unsqueeze(-2))).flatten(-2))
    differ = sines > tolerance * (_condition_on_range(s) + _condition_on_range(t))
    for position in status.positions((ranks[0] != ranks[1]) | differ)[:1]:
        first, second = (int(rank[position]) for rank in ranks)
        got = f"ranks {first} and {second}" if first != second else f"two different ranges of rank {first}"
        where = "" if not position else f" in batch position {position}"
        raise ArgumentError(
            f"{operation}: expected two matrices with the same range, such as two of full rank, got {got}{where}. "
            "Add a multiple of the identity to both."
        )
    return agree


def _condition_on_range(s: Tensor) -> Tensor:
    largest = s.amax(-1)
    least = torch.where(s > 0, s, largest.unsqueeze(-1)).amin(-1)
    return torch.where(largest > 0, largest / least, 1).square()


@fake_rule(same_range)
def _(
    s: Tensor, V: Tensor, t: Tensor, W: Tensor, operation: str, rtol: float, dtype: torch.dtype | None = None
) -> Tensor:
    return torch.empty(s.shape[:-1], dtype=torch.bool, device=s.device)


@vmap_rule(same_range)
def _(info, in_dims, *inputs):  # type: ignore[no-untyped-def]
    tensors, settings = inputs[:4], inputs[4:]
    batched = (
        x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip(tensors, in_dims, strict=False)
    )
    return same_range(*batched, *settings), 0
