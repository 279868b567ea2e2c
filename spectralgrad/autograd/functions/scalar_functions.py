"""Scalar functions with their derivatives and divided differences, from which matrix functions are built."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .divided_differences import (
    Differences,
    DividedDifferences,
    Scalar,
    exp,
    integer_power,
    inv_sqrt,
    log,
    ordered,
    power,
    sqrt,
    to_the_power,
)

LARGEST_POWER = 2**53  # beyond, not every whole number is a float


@dataclass(frozen=True)
class Function:
    """A function of eigenvalues: its value, its derivative (``slope``) and its divided differences.

    Attributes:
        degree: p if :math:`f(c\\lambda)=c^pf(\\lambda)`, a number or a tensor that broadcasts against the batch; 0 for
            the logarithm, whose slope has the degree −1; None for other functions.
        kernel: the name of the function in the kernel and its exponent, if the kernel has it.
        scaled: for the logarithm, returns g with :math:`f(2^e\\lambda)=g(\\lambda)`, given e (*,).
    """

    value: Scalar
    slope: Scalar
    differences: DividedDifferences
    degree: float | Tensor | None = field(default=None, kw_only=True)
    scaled: Callable[[Tensor], Function] | None = field(default=None, kw_only=True)
    kernel: tuple[str, float] | None = field(default=None, kw_only=True)

    def at(self, e: Tensor) -> tuple[Function, Tensor]:
        """Return g and n with :math:`f(2^e\\lambda)=2^ng(\\lambda)`, given even e (*,), for functions with a degree.

        n (*,) is whole: it may be large, and a fraction of a large number would be rounded. g is f times a number
        between 1/2 and 2, or f itself if the degree is a multiple of one half. If the degree is a tensor, that number
        carries the derivative of :math:`2^{ep}` in p.
        """
        if self.scaled is not None:
            return self.scaled(e), 0 * e
        whole, fraction = _split_product(e, self.degree)  # type: ignore[arg-type]
        halves = isinstance(self.degree, (int, float)) and float(2 * self.degree).is_integer()
        return self if halves else _times(self, torch.exp2(fraction)), whole


def _split_product(e: Tensor, p: float | Tensor) -> tuple[Tensor, Tensor]:
    """Return the whole and the fractional part of the product ep, without the rounding error of the product.

    The fraction carries the gradient of p.
    """
    unit = 2.0 ** (16 if e.dtype == torch.float64 else 12)  # such that e times a multiple of 1/unit is exact
    if isinstance(p, Tensor):
        p = p.to(e)
    head = (torch.round(p.detach() * unit) if isinstance(p, Tensor) else round(p * unit)) / unit
    product, correction = e * head, e * (p - head)
    whole = torch.round(product + correction).detach()
    return whole, (product - whole) + correction


def _times(f: Function, c: Tensor) -> Function:
    """Return f times a positive number c (*,)."""
    factor = c.unsqueeze(-1)

    def all_differences(w: Tensor) -> Differences:
        values, gamma, curvature = f.differences(w)
        return values * factor, gamma * factor.unsqueeze(-1), curvature * factor

    return Function(lambda w: f.value(w) * factor, lambda w: f.slope(w) * factor, all_differences, degree=f.degree)


def logarithm(exponent: Tensor | None = None) -> Function:
    """Return log λ + e log 2, for an exponent e that broadcasts against the batch."""
    offset = 0.0 if exponent is None else exponent.unsqueeze(-1) * math.log(2)

    def all_differences(w: Tensor) -> Differences:
        values, gamma, curvature = log(w)
        return values if exponent is None else values + offset, gamma, curvature

    def value(w: Tensor) -> Tensor:
        return w.log() if exponent is None else w.log() + offset

    def scaled(e: Tensor) -> Function:
        return logarithm(e if exponent is None else exponent + e)

    known = ("logarithm", 0.0) if exponent is None else None
    return Function(value, torch.reciprocal, all_differences, degree=0.0, scaled=scaled, kernel=known)


EXP = Function(torch.exp, torch.exp, exp, kernel=("exponential", 0.0))
LOG = logarithm()
SQRT = Function(torch.sqrt, lambda w: w.rsqrt() / 2, sqrt, degree=0.5)
INV_SQRT = Function(torch.rsqrt, lambda w: -w.rsqrt() / (2 * w), inv_sqrt, degree=-0.5)


def _moderate(p: float) -> float | None:
    """Return the degree of a power, or None for a power so large that scaling does not help.

    Only eigenvalues near one have representable values then, and a power of two that is left over is itself infinite.
    """
    return p if abs(p) <= 100 else None


def real_power(p: Tensor, degree: float | None = None) -> Function:
    """Return the power with exponent ``p``, a tensor that broadcasts against the batch, or ``degree`` as a tensor."""
    exponent = p.unsqueeze(-1)
    return Function(
        lambda w: to_the_power(w, exponent),
        lambda w: exponent * w.pow(exponent - 1),
        lambda w: power(w, p),
        degree=p if degree is None else _moderate(degree),
        kernel=None if degree is None else ("real_power", degree),
    )


def whole_power(n: int) -> Function:
    """Return the power with an integer exponent of either sign."""
    return Function(
        lambda w: w**n,
        lambda w: n * w ** (n - 1) if n else w * 0,
        lambda w: integer_power(w, n),
        degree=_moderate(n),
        kernel=("whole_power", float(n)) if abs(n) < 2**24 else None,  # as long as it is a number of single precision
    )


def log_over(c: Tensor) -> Function:
    r"""Return (log λ + c)/λ, for a tensor ``c`` that broadcasts against the batch.

    .. math:: f[a,b]=\frac{b\log[a,b]-\log b-c}{ab}\qquad(a\ge b).
    """
    offset = c.unsqueeze(-1)

    def all_differences(w: Tensor) -> Differences:
        _, b = ordered(w)
        values, gamma, _ = log(w)
        values, inverse = values + offset, 1 / w
        step = (b * gamma - b.log() - offset.unsqueeze(-1)) * (inverse.unsqueeze(-1) * inverse.unsqueeze(-2))
        return values * inverse, step, (2 * values - 3) * inverse**3

    return Function(lambda w: (w.log() + offset) / w, lambda w: (1 - w.log() - offset) / w.square(), all_differences)


def inverse_of_sum(q: Tensor) -> Function:
    r"""Return :math:`1/(r+q)`, :math:`r=\sqrt{\lambda+q^2}`, for a tensor ``q`` that broadcasts against the batch.

    .. math:: f[a,b]=\frac{-1}{(r_a+q)(r_b+q)(r_a+r_b)} .
    """
    offset = q.unsqueeze(-1)

    def parts(w: Tensor) -> tuple[Tensor, Tensor]:
        r = (w.clamp_min(0) + offset.square()).sqrt()
        return r, 1 / (r + offset)

    def slope(w: Tensor) -> Tensor:
        r, t = parts(w)
        return -t.square() / (2 * r)

    def all_differences(w: Tensor) -> Differences:
        r, t = parts(w)
        gamma = -t.unsqueeze(-1) * t.unsqueeze(-2) / (r.unsqueeze(-1) + r.unsqueeze(-2))
        return t, gamma, (3 * r + offset) * (t / r) ** 3 / 4

    return Function(lambda w: parts(w)[1], slope, all_differences)
