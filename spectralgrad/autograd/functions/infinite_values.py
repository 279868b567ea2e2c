"""Matrices composed of eigenvectors and partly infinite values: ±inf where these count, and never NaN."""

from __future__ import annotations

import torch
from torch import Tensor

from ...dispatch import function
from ...precision import any_beyond, exponent_range, ldexp
from ...solvers.products import composed
from .scalar_functions import EXP, Function


def overflows(f: Function, values: Tensor) -> bool:
    """True if a value of a function that cannot be scaled is infinite, or so large that its slope may be.

    Only eager calls are checked.
    """
    return f.degree is None and f is not EXP and function.eager(values) and any_beyond(values, _limit(values))


def small_enough(values: Tensor) -> Tensor:
    """True for each of the values of a function whose slope there is finite as well."""
    return values.detach().abs() < _limit(values)


def _limit(values: Tensor) -> float:
    return float(2.0 ** (exponent_range(values.dtype) // 2))


def composed_values(V: Tensor, f: Function, values: Tensor) -> Tensor:
    """V diag(values) Vᴴ for values of f."""
    return composed_with_infinite(V, values) if overflows(f, values) else composed(V, values, V.mH)


def composed_with_infinite(V: Tensor, values: Tensor) -> Tensor:
    """V diag(values) Vᴴ in which infinite values do not turn zeros of V into NaN."""
    infinite = values.isinf()
    signs = composed(V, torch.where(infinite, values.sign(), 0), V.mH)
    beyond = V.real.new_full((), 3.0 * exponent_range(V.dtype))
    return added(composed(V, torch.where(infinite, 0, values), V.mH), ldexp(signs, beyond))


def added(X: Tensor, Y: Tensor) -> Tensor:
    """X + Y, where torch's sum of complex numbers would turn ∞ into NaN."""
    return torch.complex(X.real + Y.real, X.imag + Y.imag) if X.dtype.is_complex else X + Y
