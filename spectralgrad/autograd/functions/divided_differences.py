r"""Divided differences :math:`f[\lambda_i,\lambda_j]`, accurate no matter how close the eigenvalues are.

Functions of type ``DividedDifferences`` return :math:`f(w)` (*, d), the matrix :math:`\Gamma` (*, d, d) of divided
differences with :math:`f'(\lambda_i)` on the diagonal, and the curvature :math:`f''(w)` (*, d). In the docstrings
:math:`a\ge b` is a pair of eigenvalues.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function
from ...precision import quotient
from .. import usual
from ..pairwise import norm

Scalar = Callable[[Tensor], Tensor]
Differences = tuple[Tensor, Tensor, Tensor]
DividedDifferences = Callable[[Tensor], Differences]


def ordered(w: Tensor) -> tuple[Tensor, Tensor]:
    """Return the larger and the smaller eigenvalue of each pair (*, d, d)."""
    i, j = w.unsqueeze(-1), w.unsqueeze(-2)
    return torch.maximum(i, j), torch.minimum(i, j)


def _excess(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mask a ≤ 2b, and y = (a − b)/b where it is true and zero elsewhere.

    For a ≤ 2b the difference a − b is exact (Sterbenz), so y is accurate.
    """
    close = a <= 2 * b
    return close, torch.where(close, a - b, 0) / b


def _log_ratio(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """Return ln(a/b) as a difference of logarithms of a and b relative to the norm, which are small and cancel less."""
    size = norm(w)[..., None, None]
    return (a / size).log() - (b / size).log()


def to_the_power(w: Tensor, p: Tensor) -> Tensor:
    """Return λᵖ with the value of torch.pow and the derivatives of exp(p ln λ).

    The value of exp(p ln λ) has an error of |p ln λ| roundings. Conversely, torch.pow sets the mixed derivative in λ
    and p to zero at p = 0, where it is not.
    """
    exponent = p * w.log()
    return w.pow(p).detach() * torch.exp(exponent - exponent.detach())


def exp(w: Tensor) -> Differences:
    r""":math:`e^a\,(1-e^{-(a-b)})/(a-b)`, which overflows only if :math:`e^a` does.

    The quotient is replaced by 1 for subnormal gaps; it equals 1 to rounding long before the gap is that small.
    """
    a, b = ordered(w)
    gap = a - b
    split = gap > torch.finfo(w.dtype).tiny
    mean = torch.where(split, quotient(-torch.expm1(-gap), gap, split), 1)
    return w.exp(), a.exp() * mean, w.exp()


def log(w: Tensor) -> Differences:
    r""":math:`\mathrm{log1p}(y)/(b\,y)` with :math:`y=(a-b)/b`; the plain quotient for :math:`y>1`."""
    a, b = ordered(w)
    close, y = _excess(a, b)
    near = torch.where(y > 0, quotient(torch.log1p(y), y, y > 0), 1) / b
    far = quotient(_log_ratio(a, b, w), a - b, ~close)
    return w.log(), torch.where(close, near, far), -1 / w.square()


def power(w: Tensor, p: Tensor) -> Differences:
    r""":math:`b^{p-1}\,\mathrm{expm1}(p\,\mathrm{log1p}\,y)/y` with :math:`y=(a-b)/b`; quotient for :math:`y>1`.

    The numerator of the quotient is :math:`-a^p\,\mathrm{expm1}(-p\ln(a/b))`, or for p < 0
    :math:`b^p\,\mathrm{expm1}(p\ln(a/b))`: the larger power, which cannot underflow, times a number below one.
    """
    a, b = ordered(w)
    p, square = p.unsqueeze(-1), p[..., None, None]
    close, y = _excess(a, b)
    growth = square * torch.log1p(y)
    close = close & (growth.abs() <= 8)  # beyond, the quotient does not cancel, and e to this power may overflow
    y, growth = torch.where(close, y, 0), torch.where(close, growth, 0)
    ratio = quotient(torch.expm1(growth), y, y > 0)
    near = torch.where(y > 0, ratio, square) * b.pow(square - 1)
    values, sign = to_the_power(w, p), torch.where(square < 0, 1, -1)
    larger, _ = ordered(values)
    far = quotient(larger * sign * torch.expm1(sign * square * _log_ratio(a, b, w)), a - b, ~close)
    return values, torch.where(close, near, far), p * (p - 1) * w.pow(p - 2)


def sqrt(w: Tensor) -> Differences:
    r""":math:`1/(\sqrt a+\sqrt b)`."""
    s = w.sqrt()
    return s, solvers.inverse_sums(s), -1 / (4 * s * w)


def inv_sqrt(w: Tensor) -> Differences:
    r""":math:`-1/(\sqrt a\sqrt b(\sqrt a+\sqrt b))`."""
    s, gamma, _ = sqrt(w)
    z = 1 / s
    return z, -z.unsqueeze(-1) * z.unsqueeze(-2) * gamma, 3 * z / (4 * w.square())


def integer_power(w: Tensor, n: int) -> Differences:
    r""":math:`\sum_{k} \lambda_i^k\lambda_j^{n-1-k}` for n ≥ 0, at any sign and gap; through 1/λ for n < 0."""
    if n < 0:
        inverse = 1 / w
        values, gamma, _ = integer_power(inverse, -n)
        curvature = n * (n - 1) * values * inverse.square()
        return w**n, -gamma * inverse.unsqueeze(-1) * inverse.unsqueeze(-2), curvature  # w**n: the value without Γ
    i, j = w.unsqueeze(-1), w.unsqueeze(-2)
    return w**n, _sum_of_products(i, j, n), n * (n - 1) * w ** max(n - 2, 0)


def _sum_of_products(i: Tensor, j: Tensor, n: int) -> Tensor:
    r"""Return :math:`s_n=\sum_{k<n} i^kj^{n-1-k}`, for large n by :math:`s_{2m}=s_m(i^m+j^m)`."""
    if n > 16:
        half = _sum_of_products(i, j, n // 2) * (i ** (n // 2) + j ** (n // 2))
        return half * i + j ** (n - 1) if n % 2 else half
    total = torch.zeros_like(i * j)
    for k in range(n):
        total = total * i + j**k
    return total


def inside(w: Tensor) -> Tensor:
    """Return an eigenvalue (*, 1) of each matrix in the domain of f, which replaces the zeros of the null space.

    Their results are discarded afterwards, but must be finite: otherwise their gradient would be NaN.
    """
    if w.shape[-1] == 0:
        return w.new_ones((*w.shape[:-1], 1))
    largest = w.detach().gather(-1, w.detach().abs().argmax(-1, keepdim=True))
    return torch.where(largest == 0, 1, largest)


def kept(f: Scalar, w: Tensor, support: Tensor, assume: bool = False) -> Tensor:
    """Return an elementwise function of ``w`` on the range, and zero elsewhere.

    ``assume`` that the range is usually all of the spectrum: see :func:`spectralgrad.autograd.usual.everywhere`.
    """
    if bool(support.all()) if function.eager(w, support) else assume and usual.everywhere(support):
        return f(w)
    return torch.where(support, f(torch.where(support, w, inside(w))), 0)


def on_range(f: DividedDifferences, w: Tensor, support: Tensor, assume: bool = False) -> Differences:
    """Return the divided differences of f restricted to the range; see :func:`restricted` and :func:`kept`."""
    if bool(support.all()) if function.eager(w, support) else assume and usual.everywhere(support):
        return f(w)
    values, gamma, curvature = f(torch.where(support, w, inside(w)))
    values, curvature = torch.where(support, values, 0), torch.where(support, curvature, 0)
    return values, restricted(gamma, values, w, support), curvature


def restricted(gamma: Tensor, values: Tensor, w: Tensor, support: Tensor) -> Tensor:
    """Return Γ for values that vanish on the null space: f(λ)/λ between range and null space, zero within null space.

    Args:
        gamma: the divided differences (*, d, d) of f; only pairs within the range are used.
        values: f(w) (*, d), zero on the null space.
        w: eigenvalues (*, d).
        support: the mask (*, d) of the range.
    """
    rows, columns = support.unsqueeze(-1), support.unsqueeze(-2)
    ratio = quotient(values, w, support)
    across = ratio.unsqueeze(-1) + ratio.unsqueeze(-2)
    return torch.where(rows & columns, gamma, torch.where(rows ^ columns, across, 0))


def second(w: Tensor, gamma: Tensor, curvature: Tensor, middle: slice) -> Tensor:
    r"""Second divided differences :math:`f[\lambda_i,\lambda_k,\lambda_j]` (*, d, m, d) for k in ``middle``.

    Of the three equivalent quotients, such as :math:`(f[a,b]-f[b,c])/(a-c)`, the one with the largest denominator is
    used. For triples within :math:`\epsilon^{1/3}` of each other the result is the mean of :math:`f''/2`. The distance
    is relative to the eigenvalues themselves or, where the quotient would cancel, to the norm.

    Args:
        w: eigenvalues (*, d), zero on a null space.
        gamma: first divided differences (*, d, d).
        curvature: :math:`f''(\lambda)` (*, d), zero on a null space.
        middle: the range of middle indices k.
    """
    a, b, c = w[..., :, None, None], w[..., None, middle, None], w[..., None, None, :]
    ab, bc, ac = gamma[..., :, middle, None], gamma[..., None, middle, :], gamma[..., :, None, :]
    gaps = torch.stack(torch.broadcast_tensors(a - c, a - b, b - c))
    steps = torch.stack(torch.broadcast_tensors(ab - bc, ac - bc, ab - ac))
    widest = gaps.abs().argmax(0, keepdim=True)
    gap, step = gaps.gather(0, widest)[0], steps.gather(0, widest)[0]
    size = torch.maximum(torch.maximum(a.abs(), b.abs()), c.abs())
    # The quotient has a relative error of about eps/gap, the mean of f″/2 one of about gap²: equal at gap = eps^(1/3).
    close = torch.finfo(w.dtype).eps ** (1 / 3)
    weight = torch.maximum(torch.maximum(ab.abs(), bc.abs()), ac.abs())
    cancels = (step.abs() <= close * weight) & (gap.abs() <= close * norm(w)[..., None, None, None])
    apart = (gap.abs() > close * size) & ~cancels
    mean = (curvature[..., :, None, None] + curvature[..., None, middle, None] + curvature[..., None, None, :]) / 6
    return torch.where(apart, quotient(step, gap, apart), mean)
