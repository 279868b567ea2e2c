"""Scalar functions with their derivatives and divided differences, from which matrix functions are built."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Function:
    """A function of eigenvalues: its value, its derivative (``slope``) and its divided differences."""

    value: Scalar
    slope: Scalar
    differences: DividedDifferences


EXP = Function(torch.exp, torch.exp, exp)
LOG = Function(torch.log, torch.reciprocal, log)
SQRT = Function(torch.sqrt, lambda w: w.rsqrt() / 2, sqrt)
INV_SQRT = Function(torch.rsqrt, lambda w: -w.rsqrt() / (2 * w), inv_sqrt)


def real_power(p: Tensor) -> Function:
    """Return the power with exponent ``p``, a tensor that broadcasts against the batch."""
    exponent = p.unsqueeze(-1)
    return Function(
        lambda w: to_the_power(w, exponent), lambda w: exponent * w.pow(exponent - 1), lambda w: power(w, p)
    )


def whole_power(n: int) -> Function:
    """Return the power with an integer exponent of either sign."""
    return Function(lambda w: w**n, lambda w: n * w ** (n - 1) if n else w * 0, lambda w: integer_power(w, n))


def shifted_log(c: Tensor) -> Function:
    """Return log λ + c, for a tensor ``c`` that broadcasts against the batch."""
    offset = c.unsqueeze(-1)

    def all_differences(w: Tensor) -> Differences:
        values, gamma, curvature = log(w)
        return values + offset, gamma, curvature

    return Function(lambda w: w.log() + offset, torch.reciprocal, all_differences)


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
