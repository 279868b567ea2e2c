r"""Divided differences :math:`f[\lambda_i,\lambda_j]`, accurate however close the eigenvalues are.

Every function of eigenvalues returns :math:`f(w)` (*, d), :math:`\Gamma` (*, d, d), the divided differences with
:math:`f'(\lambda_i)` on the diagonal, and the curvature :math:`f''(w)` (*, d).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from . import transforms
from .errors import ShapeError
from .methods.base import differences, identity_mask, norm, quotient
from .torch_internals import in_transform

_GAUSS = tuple((float(x), float(c)) for x, c in zip(*np.polynomial.legendre.leggauss(6), strict=True))

Scalar = Callable[[Tensor], Tensor]
Differences = tuple[Tensor, Tensor, Tensor]
DividedDifferences = Callable[[Tensor], Differences]


@dataclass(frozen=True)
class Function:
    """A function of eigenvalues: its value, its derivative, and all of its divided differences."""

    value: Scalar
    slope: Scalar
    differences: DividedDifferences


def _ordered(w: Tensor) -> tuple[Tensor, Tensor]:
    """The larger and the smaller of each pair (*, d, d)."""
    i, j = w.unsqueeze(-1), w.unsqueeze(-2)
    return torch.maximum(i, j), torch.minimum(i, j)


def _excess(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Whether a ≤ 2b, and there y = (a − b)/b; zero elsewhere."""
    close = a <= 2 * b
    return close, torch.where(close, a - b, 0) / b


def _log_ratio(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """ln(a/b) relative to the norm: the logarithms themselves cancel where the matrix is far from one."""
    size = norm(w)[..., None, None]
    return (a / size).log() - (b / size).log()


def _to_the_power(w: Tensor, p: Tensor) -> Tensor:
    """λᵖ by torch.pow, since exp(p ln λ) is off by |p ln λ| roundings; its derivatives by the latter.

    Torch masks the derivative in p of the derivative of zeroth powers.
    """
    exponent = p * w.log()
    return w.pow(p).detach() * torch.exp(exponent - exponent.detach())


def exp(w: Tensor) -> Differences:
    r""":math:`e^a\,(1-e^{-(a-b)})/(a-b)` for :math:`a\ge b`; no overflow that :math:`e^a` does not have.

    The quotient is 1 to rounding long before the gap is denormal, so the tie begins there.
    """
    a, b = _ordered(w)
    gap = a - b
    split = gap > torch.finfo(w.dtype).tiny
    mean = torch.where(split, quotient(-torch.expm1(-gap), gap, split), 1)
    return w.exp(), a.exp() * mean, w.exp()


def log(w: Tensor) -> Differences:
    r""":math:`\mathrm{log1p}(y)/(b\,y)` with :math:`y=(a-b)/b`; the plain quotient for :math:`y>1`."""
    a, b = _ordered(w)
    close, y = _excess(a, b)
    near = torch.where(y > 0, quotient(torch.log1p(y), y, y > 0), 1) / b
    far = quotient(_log_ratio(a, b, w), a - b, ~close)
    return w.log(), torch.where(close, near, far), -1 / w.square()


def power(w: Tensor, p: Tensor) -> Differences:
    r""":math:`b^{p-1}\,\mathrm{expm1}(p\,\mathrm{log1p}\,y)/y` with :math:`y=(a-b)/b`; quotient for :math:`y>1`."""
    a, b = _ordered(w)
    p, square = p.unsqueeze(-1), p[..., None, None]
    close, y = _excess(a, b)
    ratio = quotient(torch.expm1(square * torch.log1p(y)), y, y > 0)
    near = torch.where(y > 0, ratio, square) * b.pow(square - 1)
    far = quotient(b.pow(square) * torch.expm1(square * _log_ratio(a, b, w)), a - b, ~close)
    return _to_the_power(w, p), torch.where(close, near, far), p * (p - 1) * w.pow(p - 2)


def sqrt(w: Tensor) -> Differences:
    r""":math:`1/(\sqrt a+\sqrt b)`."""
    s = w.sqrt()
    return s, 1 / (s.unsqueeze(-1) + s.unsqueeze(-2)), -1 / (4 * s * w)


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
        return values, -gamma * inverse.unsqueeze(-1) * inverse.unsqueeze(-2), n * (n - 1) * values * inverse.square()
    i, j = w.unsqueeze(-1), w.unsqueeze(-2)
    total = torch.zeros_like(i * j)
    for k in range(n):
        total = total * i + j**k
    return w**n, total, n * (n - 1) * w ** max(n - 2, 0)


def general(w: Tensor, f: Scalar, df: Scalar | None) -> Differences:
    r"""For any smooth elementwise f: the quotient for separated pairs, else the mean of :math:`f'`.

    .. math:: f[a,b]=\int_0^1 f'(b+t(a-b))\,dt,

    by six-point Gauss–Legendre quadrature for pairs within 20 % of each other (the error is below rounding if f
    is analytic in a disc around the pair that reaches to zero) and where the quotient would cancel. Without
    ``df`` f is differentiated by torch.
    """
    values = f(w)
    derivative = df if df is not None else _derivative(f, values.requires_grad)
    i, j = torch.broadcast_tensors(w.unsqueeze(-1), w.unsqueeze(-2))
    gap = differences(w)
    size = torch.maximum(i.abs(), j.abs())
    height = torch.maximum(values.abs().unsqueeze(-1), values.abs().unsqueeze(-2))
    cancels = (differences(values).abs() <= 1e-3 * height) & (gap.abs() <= 0.05 * norm(w)[..., None, None])
    close = (gap.abs() <= 0.2 * size) | cancels | identity_mask(w)
    centre, half = (i + j) / 2, torch.where(close, gap, 0) / 2
    inside = torch.where(close, centre, i)  # keep f' away from where the quadrature is not used
    mean = sum(derivative(inside + half * node) * (weight / 2) for node, weight in _GAUSS)
    apart = quotient(differences(values), gap, ~close)
    return values, torch.where(close, mean, apart), _slope(derivative, w)


EXP = Function(torch.exp, torch.exp, exp)
LOG = Function(torch.log, torch.reciprocal, log)
SQRT = Function(torch.sqrt, lambda w: w.rsqrt() / 2, sqrt)
INV_SQRT = Function(torch.rsqrt, lambda w: -w.rsqrt() / (2 * w), inv_sqrt)


def real_power(p: Tensor) -> Function:
    """The power with exponent ``p``, a tensor that broadcasts against the batch."""
    exponent = p.unsqueeze(-1)
    return Function(
        lambda w: _to_the_power(w, exponent), lambda w: exponent * w.pow(exponent - 1), lambda w: power(w, p)
    )


def whole_power(n: int) -> Function:
    """The power with a whole exponent, of either sign."""
    return Function(lambda w: w**n, lambda w: n * w ** (n - 1) if n else w * 0, lambda w: integer_power(w, n))


def shifted_log(c: Tensor) -> Function:
    """log λ + c, for a tensor ``c`` that broadcasts against the batch."""
    offset = c.unsqueeze(-1)

    def all_differences(w: Tensor) -> Differences:
        values, gamma, curvature = log(w)
        return values + offset, gamma, curvature

    return Function(lambda w: w.log() + offset, torch.reciprocal, all_differences)


def log_over(c: Tensor) -> Function:
    r"""(log λ + c)/λ, for a tensor ``c`` that broadcasts against the batch.

    .. math:: f[a,b]=\frac{b\log[a,b]-\log b-c}{ab}\qquad(a\ge b).
    """
    offset = c.unsqueeze(-1)

    def all_differences(w: Tensor) -> Differences:
        _, b = _ordered(w)
        values, gamma, _ = log(w)
        values, inverse = values + offset, 1 / w
        step = (b * gamma - b.log() - offset.unsqueeze(-1)) * (inverse.unsqueeze(-1) * inverse.unsqueeze(-2))
        return values * inverse, step, (2 * values - 3) * inverse**3

    return Function(lambda w: (w.log() + offset) / w, lambda w: (1 - w.log() - offset) / w.square(), all_differences)


def inverse_of_sum(q: Tensor) -> Function:
    r""":math:`1/(r+q)` with :math:`r=\sqrt{\lambda+q^2}`, for a tensor ``q`` that broadcasts against the batch.

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


def smooth(f: Scalar, df: Scalar | None) -> Function:
    """Any smooth function; torch differentiates it if ``df`` is not given."""
    f, df = elementwise(f, "f"), None if df is None else elementwise(df, "df")
    slope = df if df is not None else lambda w: _derivative(f, f(w).requires_grad)(w)
    return Function(f, slope, lambda w: general(w, f, df))


def elementwise(f: Scalar, name: str) -> Scalar:
    """``f``, refused if it is not elementwise: a result of another shape, or one that depends on the other entries.

    The second is seen by calling ``f`` on the first and on the last entry alone, in eager mode, once. Any shape may be
    passed to f.
    """
    tried = False

    def checked(x: Tensor) -> Tensor:
        nonlocal tried
        values = f(x)
        if not isinstance(values, Tensor) or values.shape != x.shape:
            got = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            raise ShapeError(
                f"matrix_function: expected {name} to be elementwise, got {got} for eigenvalues of shape "
                f"{tuple(x.shape)}; it must take tensors of any shape"
            )
        if not tried and transforms.eager(x, values) and x.numel():
            tried = True
            for entry in (slice(-1, None), slice(0, 1)):
                _compare_alone(f, name, x.detach().reshape(-1)[entry], values.detach().reshape(-1)[entry])
        return values

    return checked


def _compare_alone(f: Scalar, name: str, entry: Tensor, among: Tensor) -> None:
    """Refuse ``f`` if its value for one ``entry`` (1,) is another than it was among others."""
    alone = f(entry).detach()
    if alone.shape != (1,) or not torch.allclose(alone, among, rtol=1e-3, equal_nan=True):
        raise ShapeError(
            f"matrix_function: expected {name} to be elementwise, got {among.item():.6g} for the eigenvalue "
            f"{entry.item():.6g} among others and {alone.cpu().tolist()} for it alone"
        )


def _derivative(f: Scalar, learns: bool) -> Scalar:
    """The derivative of f, with the graph of its argument and, if it ``learns``, of its parameters."""

    def df(x: Tensor) -> Tensor:
        if torch.compiler.is_dynamo_compiling() or in_transform():
            result: Tensor = torch.func.grad(lambda y: f(y).sum())(x)
            return result
        # Unlike torch.func this works under saved-tensor hooks, which checkpointing needs.
        with torch.inference_mode(False), torch.enable_grad():
            y = x if x.requires_grad else x.detach().clone().requires_grad_()
            (result,) = torch.autograd.grad(f(y).sum(), y, create_graph=learns or x.requires_grad)
        return result

    return df


def _slope(df: Scalar, w: Tensor) -> Tensor:
    """The derivative of ``df`` at ``w``; by a five-point difference if torch cannot differentiate df.

    Only triples of eigenvalues that nearly coincide use it, in second derivatives.
    """
    w = w.detach()
    try:
        return _derivative(df, learns=False)(w).detach()
    except RuntimeError:
        size = norm(w).unsqueeze(-1)
        eps = torch.finfo(w.dtype).eps
        h = eps**0.2 * torch.where(w.abs() > eps * size, w.abs(), torch.where(size > 0, size, 1))
        return (df(w - 2 * h) - 8 * df(w - h) + 8 * df(w + h) - df(w + 2 * h)).detach() / (12 * h)


def inside(w: Tensor) -> Tensor:
    """An eigenvalue of each matrix (*, 1) that surely lies in the domain of f, to stand in for the null space."""
    if w.shape[-1] == 0:
        return w.new_ones((*w.shape[:-1], 1))
    largest = w.detach().gather(-1, w.detach().abs().argmax(-1, keepdim=True))
    return torch.where(largest == 0, 1, largest)


def kept(f: Scalar, w: Tensor, support: Tensor) -> Tensor:
    """An elementwise function restricted to the range, zero elsewhere."""
    return torch.where(support, f(torch.where(support, w, inside(w))), 0)


def on_range(f: DividedDifferences, w: Tensor, support: Tensor) -> Differences:
    """f restricted to the range: zero on the null space, f(λ)/λ between the two, nothing within the null space."""
    values, gamma, curvature = f(torch.where(support, w, inside(w)))
    values, curvature = torch.where(support, values, 0), torch.where(support, curvature, 0)
    rows, columns = support.unsqueeze(-1), support.unsqueeze(-2)
    ratio = quotient(values, w, support)
    across = ratio.unsqueeze(-1) + ratio.unsqueeze(-2)
    return values, torch.where(rows & columns, gamma, torch.where(rows ^ columns, across, 0)), curvature


def second(w: Tensor, gamma: Tensor, curvature: Tensor, middle: slice) -> Tensor:
    r"""Second divided differences :math:`f[\lambda_i,\lambda_k,\lambda_j]` (*, d, m, d) for k in ``middle``.

    Of the three equal quotients, such as :math:`(f[a,b]-f[b,c])/(a-c)`, the one with the widest separation is
    taken; for triples within :math:`\epsilon^{1/3}` of each other, relative to themselves or, if the quotient
    would cancel, to the norm, the mean of :math:`f''/2`.

    Args:
        w: eigenvalues (*, d), zero on a null space.
        gamma: first divided differences (*, d, d).
        curvature: :math:`f''(\lambda)` (*, d), zero on a null space.
        middle: the slab of middle indices.
    """
    a, b, c = w[..., :, None, None], w[..., None, middle, None], w[..., None, None, :]
    ab, bc, ac = gamma[..., :, middle, None], gamma[..., None, middle, :], gamma[..., :, None, :]
    gaps = torch.stack(torch.broadcast_tensors(a - c, a - b, b - c))
    steps = torch.stack(torch.broadcast_tensors(ab - bc, ac - bc, ab - ac))
    widest = gaps.abs().argmax(0, keepdim=True)
    gap, step = gaps.gather(0, widest)[0], steps.gather(0, widest)[0]
    size = torch.maximum(torch.maximum(a.abs(), b.abs()), c.abs())
    close = torch.finfo(w.dtype).eps ** (1 / 3)
    weight = torch.maximum(torch.maximum(ab.abs(), bc.abs()), ac.abs())
    cancels = (step.abs() <= close * weight) & (gap.abs() <= close * norm(w)[..., None, None, None])
    apart = (gap.abs() > close * size) & ~cancels
    mean = (curvature[..., :, None, None] + curvature[..., None, middle, None] + curvature[..., None, None, :]) / 6
    return torch.where(apart, quotient(step, gap, apart), mean)
