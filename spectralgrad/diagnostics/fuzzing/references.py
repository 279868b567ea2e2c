r"""Reference results: spectra by LAPACK in double precision, and gradients by an independent closed form.

A matrix is first scaled by a power of two, so that nothing overflows here; ``exponent`` undoes the scaling. It is a
multiple of 8, so that its products with the exponents tested (1/2, −1/2, 3/8, 2, −1) are integers.

Errors are measured in units of what a backward stable algorithm may commit: an error E in A of norm :math:`u\|A\|`
changes f(A) by at most :math:`\Gamma_{\max}\|E\|_F` and the gradient by :math:`\Gamma^{(2)}_{\max}\|E\|\|G\|_F`, where
:math:`\Gamma` and :math:`\Gamma^{(2)}` are the first and second divided differences of f on the spectrum (in the
range; towards the null space they are :math:`f(\lambda)/\lambda` and :math:`f(\lambda)/\lambda^2`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...precision import rank_tolerance

Scalar = Callable[[Tensor], Tensor]
Pairs = Callable[[Tensor, Tensor], Tensor]


class Rounding:
    """The unit roundoff for matrices of a given magnitude.

    In the denormal range the spacing of numbers is constant, as in fixed point, so the relative error is larger.
    """

    eps: float
    largest: float
    smallest: float
    least: float
    unit: Tensor

    def __init__(self, matrices: Tensor) -> None:
        info = torch.finfo(matrices.dtype)
        self.eps, self.largest, self.smallest = info.eps, info.max, info.tiny
        self.least = info.tiny * info.eps  # the smallest denormal number
        size = matrices.abs().flatten(1).amax(1).double() if matrices.numel() else matrices.new_zeros(len(matrices))
        self.size = size
        self.unit = info.eps / 2 + torch.where(size > 0, self.least / torch.where(size > 0, size, 1), 0)

    def holds(self, magnitude: Tensor, exponent: Tensor) -> Tensor:
        """True for numbers magnitude·2^exponent that are far from overflow."""
        return self.power(magnitude, exponent) < math.log2(self.largest) - 8

    def carries(self, magnitude: Tensor, exponent: Tensor) -> Tensor:
        """True for numbers below 3/4 of the exponent range, so that products with them are far from overflow."""
        return self.power(magnitude, exponent) < 0.75 * math.log2(self.largest)

    def resolves(self, magnitude: Tensor, exponent: Tensor) -> Tensor:
        """True for numbers whose rounding errors do not underflow."""
        return self.power(magnitude * self.eps, exponent) > math.log2(self.smallest)

    @staticmethod
    def power(magnitude: Tensor, exponent: Tensor) -> Tensor:
        """The binary logarithm of magnitude·2^exponent."""
        return magnitude.clamp_min(1e-300).log2() + exponent


def wide(x: Tensor) -> Tensor:
    """``x``, detached and in double precision."""
    return x.detach().to(torch.complex128 if x.dtype.is_complex else torch.float64)


def shifted(x: Tensor, exponent: Tensor) -> Tensor:
    """x·2^exponent with one exponent per matrix, in two steps so that the power of two itself does not overflow."""
    exponent = exponent.reshape(-1, *[1] * (x.dim() - 1))
    half = torch.div(exponent, 2, rounding_mode="trunc")
    return x * torch.exp2(half) * torch.exp2(exponent - half)


def normalized(A: Tensor) -> tuple[Tensor, Tensor]:
    """A in double precision, scaled to a largest entry between 1/2 and 2⁷, and the exponents (*,) that undo this."""
    A = wide(A)
    size = A.abs().flatten(1).amax(1) if A.numel() else A.real.new_zeros(len(A))
    exponent = torch.where(size > 0, torch.frexp(size).exponent.double(), 0)
    exponent = torch.floor(exponent / 8) * 8
    return shifted(A, -exponent), exponent


@dataclass(frozen=True)
class Function:
    """A scalar function, its divided differences, and a bound for its second divided differences on a spectrum.

    ``degree`` is p if f(cλ) = cᵖf(λ) (plus ``offset``·log₂c), otherwise None. If ``null``, f acts on the range only,
    which includes negative eigenvalues if ``signed``. ``lipschitz`` is the largest slope of f.
    """

    value: Scalar
    pairs: Pairs
    second: Scalar
    degree: float | None = None
    null: bool = True
    offset: float = 0.0
    signed: bool = False
    lipschitz: float | None = None


def power(p: float) -> Function:
    r"""λᵖ: with :math:`t=\tfrac12\ln(a/b)` the quotient is :math:`(ab)^{(p-1)/2}\sinh(pt)/\sinh t`."""

    def pairs(a: Tensor, b: Tensor) -> Tensor:
        t = half_log(a, b)
        small = t.abs() < 1e-9
        ratio = torch.where(small, p, torch.sinh(p * t) / torch.where(small, 1, torch.sinh(t)))
        return a.pow((p - 1) / 2) * b.pow((p - 1) / 2) * ratio

    return Function(lambda w: w.pow(p), pairs, lambda w: abs(p * (p - 1)) / 2 * w.pow(p - 2), p)


def half_log(a: Tensor, b: Tensor) -> Tensor:
    """½ ln(a/b), accurate for close pairs."""
    low, high = torch.minimum(a, b), torch.maximum(a, b)
    close = high < 2 * low
    t = torch.where(close, torch.log1p(torch.where(close, high - low, 0) / low), high.log() - low.log()) / 2
    return torch.where(a >= b, t, -t)


def _log_pairs(a: Tensor, b: Tensor) -> Tensor:
    t = half_log(a, b)
    small = t.abs() < 1e-9
    return torch.where(small, 1, t / torch.where(small, 1, torch.sinh(t))) / (a.sqrt() * b.sqrt())


def _exp_pairs(a: Tensor, b: Tensor) -> Tensor:
    h = (a - b).abs() / 2
    small = h < 1e-9
    return torch.maximum(a, b).exp() * torch.where(small, 1 - h, -torch.expm1(-2 * h) / torch.where(small, 1, 2 * h))


def _tanh_pairs(a: Tensor, b: Tensor) -> Tensor:
    gap = a - b
    small = gap.abs() < 1e-9
    mean = torch.where(small, 1, torch.tanh(gap) / torch.where(small, 1, gap))
    return mean * torch.where(small, 1 / torch.cosh((a + b) / 2).square(), 1 - torch.tanh(a) * torch.tanh(b))


SQRT = Function(torch.sqrt, lambda a, b: 1 / (a.sqrt() + b.sqrt()), lambda w: w.pow(-1.5) / 8, 0.5)
INV_SQRT = Function(
    torch.rsqrt, lambda a, b: -1 / (a.sqrt() * b.sqrt() * (a.sqrt() + b.sqrt())), lambda w: 0.375 * w.pow(-2.5), -0.5
)
POWER = power(0.375)
SQUARE = Function(torch.square, lambda a, b: a + b, torch.ones_like, 2.0, null=False)
INVERSE = Function(torch.reciprocal, lambda a, b: -1 / a / b, lambda w: w.abs().pow(-3), -1.0, signed=True)
LOG = Function(torch.log, _log_pairs, lambda w: w.pow(-2) / 2, 0.0, offset=math.log(2))
EXP = Function(torch.exp, _exp_pairs, lambda w: w.exp() / 2, null=False)
TANH = Function(torch.tanh, _tanh_pairs, lambda w: torch.full_like(w, 0.385), null=False, lipschitz=1.0)


class Spectrum:
    """Hermitian matrices (batch, d, d), decomposed by LAPACK in double precision."""

    rounding: Rounding
    scaled: Tensor
    exponent: Tensor
    d: int
    w: Tensor
    V: Tensor
    size: Tensor
    rank_tolerance: Tensor

    def __init__(self, A: Tensor) -> None:
        self.A = A
        self.rounding = Rounding(A)
        self.scaled, self.exponent = normalized(A)
        self.d = A.shape[-1]
        self.w, self.V = torch.linalg.eigh(self.scaled)
        self.size = self.w.abs().amax(-1)
        self.rank_tolerance = rank_tolerance(self.d, A.dtype) * self.size

    @cached_property
    def support(self) -> Tensor:
        """True for the eigenvalues of the range (batch, d)."""
        return self.w.abs() > self.rank_tolerance.unsqueeze(-1)

    @cached_property
    def decided(self) -> Tensor:
        """True if the rank is certain (batch,): no eigenvalue is close to the tolerance."""
        clear = self.w.abs() > 8 * self.rank_tolerance.unsqueeze(-1) + 2 * self.d * self._noise
        beyond_doubt = clear | ((self.w.abs() <= self.rank_tolerance.unsqueeze(-1) / 4) & ~self.coarse.unsqueeze(-1))
        return beyond_doubt.all(-1)

    @property
    def _noise(self) -> Tensor:
        return (self.rounding.unit * self.size).unsqueeze(-1)

    @property
    def coarse(self) -> Tensor:
        """True for matrices (batch,) so small that denormal spacing dominates the unit roundoff.

        Then no eigenvalue can be identified as rounding error.
        """
        return self.rounding.unit > self.rounding.eps

    def of(self, f: Function) -> FunctionReference:
        """The reference for f(A)."""
        return FunctionReference(self, f)


class FunctionReference:
    """f(A), its divided differences, and the units in which errors are measured."""

    spectrum: Spectrum
    f: Function
    support: Tensor
    decided: Tensor
    size: Tensor
    inside: Tensor
    values: Tensor
    gamma: Tensor
    second: Tensor
    steepest: Tensor
    height: Tensor

    def __init__(self, spectrum: Spectrum, f: Function) -> None:
        self.spectrum, self.f = spectrum, f
        everything = torch.ones_like(spectrum.support)
        self.support = spectrum.support & ((spectrum.w > 0) | f.signed) if f.null else everything
        self.decided = spectrum.decided if f.null else everything.all(-1)
        w = spectrum.w if f.degree is not None else shifted(spectrum.w, spectrum.exponent)
        self.size = w.abs().amax(-1)
        self.inside = torch.where(self.support, w, 1)
        offset = f.offset * spectrum.exponent.unsqueeze(-1)
        self.values = torch.where(self.support, f.value(self.inside) + offset, 0)
        self.gamma, self.second = self._differences(w)
        self.steepest = self.gamma.abs().amax((-2, -1))
        self.height = self.values.abs().amax(-1)

    def _differences(self, w: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns = self.support.unsqueeze(-1), self.support.unsqueeze(-2)
        gamma = self.f.pairs(self.inside.unsqueeze(-1), self.inside.unsqueeze(-2))
        ratio = torch.where(self.support, self.values / self.inside, 0)
        across = ratio.unsqueeze(-1) + ratio.unsqueeze(-2)
        gamma = torch.where(rows & columns, gamma, torch.where(rows ^ columns, across, 0))
        second = torch.where(self.support, self.f.second(self.inside), 0).amax(-1)
        null = ~self.support.all(-1)
        towards_null = torch.where(null, (ratio / self.inside).abs().amax(-1), 0)
        return gamma, torch.maximum(second, towards_null)

    def shift(self, order: int) -> Tensor:
        """The exponent that rescales the value (order 0) or the gradient (order 1) to the original matrices."""
        p = self.f.degree
        return torch.zeros_like(self.spectrum.exponent) if p is None else (p - order) * self.spectrum.exponent

    @cached_property
    def value(self) -> Tensor:
        V = self.spectrum.V
        return (V * self.values.unsqueeze(-2)) @ V.mH

    def gradient(self, G: Tensor) -> Tensor:
        """The gradient of Re⟨f(A), G⟩."""
        V, G = self.spectrum.V, wide(G)
        return V @ (self.gamma * (V.mH @ ((G + G.mH) / 2) @ V)) @ V.mH
