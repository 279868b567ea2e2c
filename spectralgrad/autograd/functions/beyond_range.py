"""Functions of matrices with infinite values or divided differences: the derivative is ±inf, and never NaN.

A product of matrices with infinite entries would be NaN. So finite and infinite divided differences are applied in two
products. In the second one each infinite entry is its sign, and a power of two makes the result infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ...dispatch import function
from ...precision import exponent_of, exponent_range, largest, ldexp, saturated
from . import frechet_derivative
from .divided_differences import Differences
from .domain import Spectrum
from .infinite_values import added, composed_with_infinite, small_enough
from .rescaling import rescaled
from .scalar_functions import Function
from .spectral_scale import Scaled

At = Callable[[Function, Tensor], Differences]


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
        for X, (e, part) in zip(copies(A), parts, strict=True)
    ]
    return added(*results)


def missing(A: Tensor, f: Function, spectrum: Spectrum, found: Scaled, differences: At) -> tuple[Tensor, Tensor] | None:
    """Return the divided differences and f″ that underflow beside the largest ones; None if none do.

    Only eager calls that need a gradient have them.

    Args:
        A: matrices (*, d, d).
        f: the function.
        spectrum: the eigenpairs without gradient.
        found: f and the eigenvalues at ordinary size, where the others were computed.
        differences: the divided differences of a function at given eigenvalues.
    """
    w = spectrum.values
    shift = found.up - found.down
    if not function.eager(w) or function.needs_no_gradient(A) or not bool((shift > 0).any()):
        return None
    with torch.no_grad():
        true, near = differences(f, w)[1:], differences(found.f, found.spectrum.values)[1:]
    exponents = shift[..., None, None], (shift - found.down).unsqueeze(-1)
    pairs = zip(true, near, exponents, strict=True)
    gamma, curvature = (torch.where((y == 0) & (e > 0), _numbers(x), 0) for x, y, e in pairs)
    return (gamma, curvature) if bool(gamma.any()) else None


def completed_derivative(
    call: Callable[[Tensor], Tensor], A: Tensor, spectrum: Spectrum, left: tuple[Tensor, Tensor] | None
) -> Tensor:
    """Return ``call(A)``; its derivative includes the part of the divided differences ``left``, if there are any."""
    if left is None:
        return call(A)
    w, V, support = spectrum
    Y, X = copies(A)  # where the larger part is infinite, it has the sign
    return added(call(X), derivative(Y, torch.where(support, w, 0), V, *left))


def without_smallest(f: Function, found: Scaled) -> Function:
    """Return f, whose divided differences are zero where they underflow, or nearly so, beside the largest one.

    It is for :func:`missing`, which adds them: subnormal numbers are inaccurate.
    """
    shift, half = found.up - found.down, 2.0 ** -(exponent_range(found.up.dtype) // 2)

    def differences(w: Tensor) -> Differences:
        values, gamma, curvature = f.differences(w)
        exponents = shift[..., None, None], (shift - found.down).unsqueeze(-1)
        pairs = zip((gamma, curvature), exponents, strict=True)
        return values, *(torch.where((x.abs() < half) & (e > 0), 0, x) for x, e in pairs)  # type: ignore[return-value]

    return replace(f, differences=differences) if function.eager(shift) else f


def values_with_parameters(f: Function, w: Tensor, support: Tensor, values: Tensor) -> Tensor:
    """Return the finite values f(w) (*, d) on the range, and zero elsewhere, with the gradient of parameters of f.

    Values that are :func:`small_enough` also have the gradient of w.
    A cotangent of zero would turn the derivative of an infinite value into NaN. So finite and infinite values are
    computed apart, and each of the infinite ones is left out of a backward pass in which its cotangent is zero.

    Args:
        f: the function.
        w: eigenvalues (*, d) with their gradient.
        support: the mask (*, d) of the range.
        values: f(w), some infinite.
    """
    finite = support & values.detach().isfinite()
    w = torch.where(small_enough(values), w, w.detach())
    result = torch.zeros_like(w).masked_scatter(finite, f.value(w[finite]))
    beyond = support & ~finite
    entries = [function.apply(_Silent, f.value(x)) for x in w.detach()[beyond].split(1)]
    return result.masked_scatter(beyond, torch.cat(entries)) if entries else result


def copies(A: Tensor) -> tuple[Tensor, Tensor]:
    """Return A twice. Where the gradient of the second copy is infinite, the first copy's does not count."""
    result: tuple[Tensor, Tensor] = function.apply(_Copies, A)
    return result


def clamped(A: Tensor) -> Tensor:
    """Return ``A``. Its gradient is clamped to the largest finite number."""
    result: Tensor = function.apply(_Clamped, A)
    return result


def _prevailing(near: Tensor, far: Tensor) -> Tensor:
    """Return the sum; in each real and imaginary part, an infinite ``far`` counts alone."""
    if far.dtype.is_complex:
        return torch.complex(_prevailing(near.real, far.real), _prevailing(near.imag, far.imag))
    return torch.where(far.isinf(), far, near + far)


def _like(e: Tensor, x: Tensor) -> Tensor:
    return e.reshape((*e.shape, *[1] * (x.dim() - e.dim())))


def _numbers(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), 0, x)


def _finite(x: Tensor) -> Tensor:
    return torch.where(x.isfinite(), x, 0)


def _signs(x: Tensor) -> Tensor:
    return torch.where(x.isinf(), x.sign(), 0)


class _Copies(function.DerivativeRule):
    """See :func:`copies`."""

    @staticmethod
    def forward(A: Tensor) -> tuple[Tensor, Tensor]:
        return A.clone(), A.clone()

    @staticmethod
    def backward(ctx, near, far):  # type: ignore[no-untyped-def]
        return _prevailing(near, far)

    @staticmethod
    def jvp(ctx, dA):  # type: ignore[no-untyped-def]
        return dA.clone(), dA.clone()


class _Silent(function.DerivativeRule):
    """Zero, with the gradient of ``x`` if the cotangent is not zero, and otherwise without."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.zeros_like(x)

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
    def backward(ctx, gA):  # type: ignore[no-untyped-def]
        return saturated(gA)

    @staticmethod
    def jvp(ctx, dA):  # type: ignore[no-untyped-def]
        return dA.clone()
