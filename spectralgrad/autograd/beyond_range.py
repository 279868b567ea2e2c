"""Functions of matrices of which values or divided differences are infinite: the derivative is ±inf, and never NaN.

A product of matrices with infinite entries would be NaN. So finite and infinite divided differences are applied in two
products. In the second one each infinite entry is its sign, and a power of two makes the result infinite.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..dispatch import function
from ..precision import exponent_of, exponent_range, largest, ldexp, saturated
from . import frechet_derivative
from .infinite_values import added, composed_with_infinite, small_enough
from .rescaling import rescaled
from .scalar_functions import Function


def exact(A: Tensor, w: Tensor, V: Tensor, values: Tensor, gamma: Tensor, curvature: Tensor) -> Tensor:
    """Return f(A) as :func:`frechet_derivative.exact` does, but some values, slopes or differences may be infinite."""
    return added(composed_with_infinite(V, values), derivative(A, w, V, gamma, curvature))


def derivative(A: Tensor, w: Tensor, V: Tensor, gamma: Tensor, curvature: Tensor) -> Tensor:
    """Return zero (*, d, d) with the derivative in ``A`` that belongs to the divided differences ``gamma``.

    The difference of two infinite values is not known; the mean slope replaces it.
    """
    if function.needs_no_gradient(A):
        return torch.zeros_like(A)
    slopes = gamma.diagonal(dim1=-2, dim2=-1) / 2
    gamma = torch.where(gamma.isnan(), slopes.unsqueeze(-1) + slopes.unsqueeze(-2), gamma)
    zero, spare = torch.zeros_like(w), 2 * math.ceil(math.log2(max(1, w.shape[-1])) / 2) + 4
    size = exponent_of(largest(torch.where(gamma.isinf(), 0, gamma)))
    up = torch.where(size > exponent_range(w.dtype) - spare, float(spare), 0)  # so that sums of d entries are finite
    parts = [(up, [ldexp(x, -_like(up, x)) for x in map(_finite, (gamma, curvature))])]
    parts.append((0 * up + 3.0 * exponent_range(w.dtype), [*map(_signs, (gamma, curvature))]))
    results = [
        rescaled(lambda A, parts=part: frechet_derivative.exact(A, w, V, zero, *parts), (X,), (0 * e,), (e,))
        for X, (e, part) in zip(function.apply(_Copies, A), parts, strict=True)
    ]
    return added(*results)


def values_with_parameters(f: Function, w: Tensor, support: Tensor, values: Tensor) -> Tensor:
    """Return the finite values f(w) (*, d) on the range, and zero elsewhere, with the gradient of parameters of f.

    Values that are :func:`small_enough` also have the gradient of w.
    A cotangent of zero would turn the derivative of an infinite value into NaN. So finite and infinite values are
    computed apart, and each of the infinite ones is left out of a backward pass in which its cotangent is zero.

    Args:
        f: the function.
        w: eigenvalues (*, d) with their gradient.
        support: the mask (*, d) of the range.
        values: f(w), of which some are infinite.
    """
    finite = support & values.detach().isfinite()
    w = torch.where(small_enough(values), w, w.detach())
    result = torch.zeros_like(w).masked_scatter(finite, f.value(w[finite]))
    beyond = support & ~finite
    entries = [function.apply(_Silent, f.value(x)) for x in w.detach()[beyond].split(1)]
    return result.masked_scatter(beyond, torch.cat(entries)) if entries else result


def clamped(A: Tensor) -> Tensor:
    """Return ``A``. Its gradient is clamped to the largest finite number."""
    result: Tensor = function.apply(_Clamped, A)
    return result


def _like(e: Tensor, x: Tensor) -> Tensor:
    return e.reshape((*e.shape, *[1] * (x.dim() - e.dim())))


def _finite(x: Tensor) -> Tensor:
    return torch.where(x.isfinite(), x, 0)


def _signs(x: Tensor) -> Tensor:
    return torch.where(x.isinf(), x.sign(), 0)


class _Copies(function.DerivativeRule):
    """A twice. Where the gradient of the second copy is infinite, that of the first does not count."""

    @staticmethod
    def forward(A: Tensor) -> tuple[Tensor, Tensor]:
        return A.clone(), A.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        pass

    @staticmethod
    def backward(ctx, near, far):  # type: ignore[no-untyped-def]
        return added(torch.where(far.isinf(), 0, near), far)

    @staticmethod
    def jvp(ctx, dA):  # type: ignore[no-untyped-def]
        return dA.clone(), dA.clone()


class _Silent(function.DerivativeRule):
    """Zero, with the gradient of ``x`` if the cotangent is not zero, and otherwise without."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        pass

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        return g if bool(g.any()) else None

    @staticmethod
    def jvp(ctx, dx):  # type: ignore[no-untyped-def]
        return dx.clone()


class _Clamped(function.DerivativeRule):
    """The identity with a clamped gradient."""

    @staticmethod
    def forward(A: Tensor) -> Tensor:
        return A.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        pass

    @staticmethod
    def backward(ctx, gA):  # type: ignore[no-untyped-def]
        return saturated(gA)

    @staticmethod
    def jvp(ctx, dA):  # type: ignore[no-untyped-def]
        return dA.clone()
