"""Logarithm, exponential, powers and projectors of Hermitian matrices, and derivatives, in one kernel call each."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from ...dispatch import function
from ...native.calls import Scalar
from ...native.functions import in_memory
from ...precision import exponent_range, moderate_limit
from ..call_counts import counts
from ..decompose import choice

Name = tuple[str, float]  # of the function in the kernel; the exponent of a power, or the rank of a projector


def function_and_eigenpairs(
    A: object, name: Name, positive: bool, rtol: float, clamp: bool, dtype: torch.dtype | None
) -> tuple[tuple[Tensor, Tensor, Tensor], int] | None:
    """Return f(A), the eigenvalues of its range, V, and the number of doubtful matrices; None if this is not the way.

    It is the way for real matrices that the kernel decomposes, if nothing but reverse mode observes the call. f(A) has
    a NaN as its first entry for doubtful matrices, which need the general way: those that cannot be decomposed, are
    outside the domain, or have eigenvalues so large or small that f or its derivatives may leave the range.

    Args:
        A: matrices (*, d, d); anything else gives None.
        name: of the function.
        positive: the matrices have to be positive semi-definite, and f acts on their range. Otherwise f acts on all
            eigenvalues, or on those with a modulus above ``rtol`` times the norm if it is not negative.
        rtol: the relative rank tolerance; if negative, the default for positive matrices.
        clamp, dtype: as in :func:`spectralgrad.solvers.kernel.roots.positive_part`.
    """
    if not (function.unobserved(A) or function.recorded(A)):
        return None
    X: Tensor = A.detach()  # type: ignore[attr-defined]
    plan = choice.symmetric(X, "function")
    if plan is None:
        return None
    zero, negative, asymmetry = choice.tolerances(plan.d, X.dtype, dtype)
    least = zero if positive and rtol < 0 else rtol
    limits = least, math.inf if clamp else negative, asymmetry
    found, doubtful = plan.function(in_memory(X), _scalar(name, X.dtype), not positive, limits)
    counts.call(plan.batch - doubtful)
    return found, doubtful


def scalar_derivative(V: Tensor, w: Tensor, G: Tensor, name: Name) -> Tensor | None:
    """Return the derivative of f in the direction sym(G), on the range, where ``w`` is not zero.

    None if the kernel is not used, and for the powers 0 and 1, to which zero is no exception.
    """
    plan = choice.derivatives(V, "scalar")
    if plan is None or G.dtype != V.dtype or name in (("whole_power", 0.0), ("whole_power", 1.0)):
        return None
    return plan.scalar(in_memory(V), in_memory(w), in_memory(G), _scalar(name, V.dtype))


@lru_cache(maxsize=256)
def _scalar(name: Name, dtype: torch.dtype) -> Scalar:
    kind, exponent = name
    if kind == "exponential":
        limit = exponent_range(dtype) / 2 * math.log(2)
    else:
        limit = moderate_limit(dtype, 1 if kind == "leading" else abs(exponent))
    return Scalar(kind, exponent, limit)
