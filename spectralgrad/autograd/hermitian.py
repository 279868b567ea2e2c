"""Hermitian matrices from their lower triangle, with a Hermitian gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from ..dispatch import function
from ..dispatch.custom_operators import current
from ..solvers.symmetry import hermitian, mirrored


def from_lower(A: Tensor, operation: str, positive: bool = False, dtype: torch.dtype | None = None) -> Tensor:
    """Return :func:`mirrored` ``A``, checked as a solver would check it, with a Hermitian gradient.

    An exported program (torch.export, ONNX) omits the checks, because they are an operator of this package that is not
    available where the program runs.

    Args:
        A: matrices (*, d, d).
        operation: name used in error messages.
        positive: raise :class:`IndefiniteError` if an eigenvalue is negative beyond rounding error.
        dtype: as in :class:`spectralgrad.autograd.functions.domain.Domain`.
    """
    if function.exporting():
        return mirrored(A)
    result: Tensor = function.apply(_FromLower, A, operation, positive, dtype)
    return result


class _FromLower(function.DerivativeRule):
    @staticmethod
    def forward(A: Tensor, operation: str, positive: bool, dtype: torch.dtype | None) -> Tensor:
        return current("checked_hermitian")(A, operation, positive, dtype)

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        return hermitian(g), None, None, None

    @staticmethod
    def jvp(ctx, dA, *_):  # type: ignore[no-untyped-def]
        return hermitian(dA)
