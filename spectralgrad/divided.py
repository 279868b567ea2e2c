r"""Divided differences :math:`f[\lambda_i,\lambda_j]`, accurate however close the eigenvalues are.

Every function returns :math:`f(w)` (*, d), :math:`\Gamma` (*, d, d), the divided differences with
:math:`f'(\lambda_i)` on the diagonal, and the curvature :math:`f''(w)` (*, d).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from .methods.base import differences, identity_mask, reciprocal

_GAUSS = tuple((float(x), float(c)) for x, c in zip(*np.polynomial.legendre.leggauss(6), strict=True))

Scalar = Callable[[Tensor], Tensor]
Differences = tuple[Tensor, Tensor, Tensor]
DividedDifferences = Callable[[Tensor], Differences]


def _ordered(w: Tensor) -> tuple[Tensor, Tensor]:
    """The larger and the smaller of each pair (*, d, d)."""
    i, j = w.unsqueeze(-1), w.unsqueeze(-2)
    return torch.maximum(i, j), torch.minimum(i, j)


def _excess(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Whether a ≤ 2b, and there y = (a − b)/b; zero elsewhere."""
    close = a <= 2 * b
    return close, torch.where(close, a - b, 0) / b


def exp(w: Tensor) -> Differences:
    r""":math:`e^a\,(1-e^{-(a-b)})/(a-b)` for :math:`a\ge b`; no overflow that :math:`e^a` does not have."""
    a, b = _ordered(w)
    gap = a - b
    split = gap > 0
    mean = torch.where(split, -torch.expm1(-gap) * reciprocal(gap, split), 1)
    return w.exp(), a.exp() * mean, w.exp()


def log(w: Tensor) -> Differences:
    r""":math:`\mathrm{log1p}(y)/(b\,y)` with :math:`y=(a-b)/b`; the plain quotient for :math:`y>1`."""
    a, b = _ordered(w)
    close, y = _excess(a, b)
    near = torch.where(y > 0, torch.log1p(y) * reciprocal(y, y > 0), 1) / b
    far = (a.log() - b.log()) * reciprocal(a - b, ~close)
    return w.log(), torch.where(close, near, far), -1 / w.square()


def power(w: Tensor, p: Tensor) -> Differences:
    r""":math:`b^{p-1}\,\mathrm{expm1}(p\,\mathrm{log1p}\,y)/y` with :math:`y=(a-b)/b`; quotient for :math:`y>1`."""
    a, b = _ordered(w)
    p, square = p.unsqueeze(-1), p[..., None, None]
    close, y = _excess(a, b)
    ratio = torch.expm1(square * torch.log1p(y)) * reciprocal(y, y > 0)
    near = torch.where(y > 0, ratio, square) * b.pow(square - 1)
    far = (a.pow(square) - b.pow(square)) * reciprocal(a - b, ~close)
    return w.pow(p), torch.where(close, near, far), p * (p - 1) * w.pow(p - 2)


def integer_power(w: Tensor, n: int) -> Differences:
    r""":math:`\sum_{k} \lambda_i^k\lambda_j^{n-1-k}` for n ≥ 0, at any sign and gap; through 1/λ for n < 0."""
    if n < 0:
        inverse = 1 / w
        values, gamma, _ = integer_power(inverse, -n)
        return values, -gamma * inverse.unsqueeze(-1) * inverse.unsqueeze(-2), n * (n - 1) * values * inverse.square()
    i, j = w.unsqueeze(-1), w.unsqueeze(-2)
    total = torch.zeros_like(i * j)
    for k in range(n):
        total = total * i + j**k
    return w**n, total, n * (n - 1) * w ** max(n - 2, 0)


def general(w: Tensor, f: Scalar, df: Scalar | None) -> Differences:
    r"""For any smooth elementwise f: the quotient for separated pairs, else the mean of :math:`f'`.

    .. math:: f[a,b]=\int_0^1 f'(b+t(a-b))\,dt,

    by six-point Gauss–Legendre quadrature for pairs within 20 % of each other: the error is below rounding if
    f is analytic in a disc around the pair that reaches to zero. Without ``df`` f is differentiated by torch.func.
    """
    derivative = df if df is not None else _derivative(f)
    values = f(w)
    i, j = torch.broadcast_tensors(w.unsqueeze(-1), w.unsqueeze(-2))
    gap = differences(w)
    size = torch.maximum(i.abs(), j.abs())
    close = (gap.abs() <= 0.2 * size) | identity_mask(w)
    centre, half = (i + j) / 2, torch.where(close, gap, 0) / 2
    inside = torch.where(close, centre, i)  # keep f' away from where the quadrature is not used
    mean = sum(derivative(inside + half * node) * (weight / 2) for node, weight in _GAUSS)
    quotient = differences(values) * reciprocal(gap, ~close)
    return values, torch.where(close, mean, quotient), _derivative(derivative)(w)


def _derivative(f: Scalar) -> Scalar:
    def df(x: Tensor) -> Tensor:
        result: Tensor = torch.func.grad(lambda y: f(y).sum())(x)
        return result

    return df


def on_range(f: DividedDifferences, w: Tensor, support: Tensor) -> Differences:
    """f restricted to the range: zero on the null space, f(λ)/λ between the two, nothing within the null space."""
    values, gamma, curvature = f(torch.where(support, w, 1))
    values, curvature = torch.where(support, values, 0), torch.where(support, curvature, 0)
    rows, columns = support.unsqueeze(-1), support.unsqueeze(-2)
    ratio = values * reciprocal(w, support)
    across = ratio.unsqueeze(-1) + ratio.unsqueeze(-2)
    return values, torch.where(rows & columns, gamma, torch.where(rows ^ columns, across, 0)), curvature


def second(w: Tensor, gamma: Tensor, curvature: Tensor) -> Tensor:
    r"""Second divided differences :math:`f[\lambda_i,\lambda_k,\lambda_j]` (*, d, d, d), indexed (i, k, j).

    Of the three equal quotients, such as :math:`(f[a,b]-f[b,c])/(a-c)`, the one with the widest separation is
    taken; for triples within :math:`\epsilon^{1/3}` of each other, the mean of :math:`f''/2`.

    Args:
        w: eigenvalues (*, d), zero on a null space.
        gamma: first divided differences (*, d, d).
        curvature: :math:`f''(\lambda)` (*, d), zero on a null space.
    """
    a, b, c = w[..., :, None, None], w[..., None, :, None], w[..., None, None, :]
    ab, bc, ac = gamma[..., :, :, None], gamma[..., None, :, :], gamma[..., :, None, :]
    gaps = torch.stack(torch.broadcast_tensors(a - c, a - b, b - c))
    steps = torch.stack(torch.broadcast_tensors(ab - bc, ac - bc, ab - ac))
    widest = gaps.abs().argmax(0, keepdim=True)
    gap, step = gaps.gather(0, widest)[0], steps.gather(0, widest)[0]
    size = torch.maximum(torch.maximum(a.abs(), b.abs()), c.abs())
    apart = gap.abs() > torch.finfo(w.dtype).eps ** (1 / 3) * size
    mean = (curvature[..., :, None, None] + curvature[..., None, :, None] + curvature[..., None, None, :]) / 6
    return torch.where(apart, step * reciprocal(gap, apart), mean)
