"""The rows of the table of gradient errors: matrices with prescribed eigenvalues or singular values, and the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..testing import PolarReference, Reference, paired_spectrum, random_orthogonal, relative_error, with_spectrum

Grid = Sequence[tuple[float, float]]  # pairs of a condition number and a relative gap

CONDITIONS = (1e2, 1e6, 1e10)
GAPS = (1e-2, 1e-6, 1e-10, 1e-14, 1e-16)
FLOAT32 = ((1e2, 1e-2), (1e2, 1e-5), (1e2, 1e-6), (1e4, 1e-2))
SPREADS = (1e-2, 1e-10, 1e-14)
LARGE = ((1e2, 1e-2), (1e2, 1e-8), (1e2, 1e-16), (1e6, 1e-12))
# The iterations for the polar factor depend on the condition number: Polar Express aims at 1e3.
POLAR = tuple((c, g) for c in (1e1, 1e2, 1e3, 1e6) for g in (1e-2, 1e-8, 1e-14))
POLAR_FLOAT32 = ((1e1, 1e-2), (1e2, 1e-2), (1e2, 1e-6), (1e3, 1e-2))


@dataclass(frozen=True)
class Case:
    """One row of the table: the eigenvalues (or singular values) of its matrices and their type."""

    label: str
    eigenvalues: tuple[float, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        return len(self.eigenvalues)


class Draw(NamedTuple):
    """A matrix, a cotangent, and the true value and gradient; of a symmetric function only symmetric parts count."""

    A: Tensor
    G: Tensor
    value: Tensor
    gradient: Tensor
    symmetric: bool

    def errors(self, function: Callable[[Tensor], Tensor]) -> tuple[float, float]:
        """Return the relative errors of gradient and value of an implementation; NaN for what is not finite."""
        X = self.A.clone().requires_grad_()
        value = function(X)
        (g,) = torch.autograd.grad((value * self.G).sum(), X)
        both = relative_error((g + g.mT) / 2 if self.symmetric else g, self.gradient), relative_error(value, self.value)
        return both[0] if np.isfinite(both[0]) else np.nan, both[1] if np.isfinite(both[1]) else np.nan


def cases(sizes: tuple[int, ...] = (8,)) -> list[Case]:
    """The rows for matrix roots: pairs of eigenvalues at a relative gap, and one tight cluster, in both types."""
    table = []
    for n in sizes:
        grid = [(c, g) for c in CONDITIONS for g in GAPS] if n <= 16 else LARGE
        table += _rows(n, grid, FLOAT32)
    return table


def polar_cases(sizes: tuple[int, ...] = (8,)) -> list[Case]:
    """The rows for the polar factor: the same with singular values."""
    return [case for n in sizes for case in _rows(n, POLAR, POLAR_FLOAT32)]


def _rows(n: int, double: Grid, single: Grid) -> list[Case]:
    return [
        *(_paired(n, c, g, torch.float64) for c, g in double),
        *(_cluster(n, spread, torch.float64) for spread in SPREADS),
        *(_paired(n, c, g, torch.float32) for c, g in single),
        _cluster(n, 1e-6, torch.float32),
        _cluster(n, 0.0, torch.float64),
    ]


def _paired(n: int, condition: float, gap: float, dtype: torch.dtype) -> Case:
    label = f"{_short(dtype)} n={n} κ={_power(condition)} gap={_power(gap)}"
    return Case(label, tuple(paired_spectrum(n, condition, gap)), dtype)


def _cluster(n: int, spread: float, dtype: torch.dtype) -> Case:
    label = f"{_short(dtype)} n={n} " + (f"cluster {_power(spread)}" if spread else "identity")
    return Case(label, tuple(1 + spread * np.linspace(0, 1, n)), dtype)


def _power(x: float) -> str:
    mantissa, exponent = f"{x:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _short(dtype: torch.dtype) -> str:
    return {torch.float32: "f32", torch.float64: "f64"}[dtype]


def draw_root(case: Case, function: str, seed: int) -> Draw:
    """A matrix with the eigenvalues of the case and the truth for ``sqrt`` or ``inv_sqrt``."""
    A = with_spectrum(np.array(case.eigenvalues), dtype=case.dtype, seed=seed)
    G = _noise(case, seed)
    G = (G + G.mT) / 2
    reference = Reference(A)
    return Draw(A, G, reference.value(function), reference.gradient(function, G), symmetric=True)


def draw_polar(case: Case, seed: int) -> Draw:
    """A matrix with the singular values of the case and the truth for the polar factor.

    If singular values are tied, the matrix is diagonal with its rows permuted: rounding would separate them in any
    other.
    """
    values = torch.tensor(case.eigenvalues, dtype=torch.float64)
    if len(set(case.eigenvalues)) < case.size:
        M = torch.diag(values).roll(1, 0).to(case.dtype)
    else:
        U, V = (random_orthogonal(case.size, seed=s) for s in (seed, seed + 1000))
        M = ((U * values) @ V).to(case.dtype)
    G, reference = _noise(case, seed), PolarReference(M)
    return Draw(M, G, reference.value(), reference.gradient(G), symmetric=False)


def _noise(case: Case, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(case.size, case.size, generator=generator, dtype=torch.float64).to(case.dtype)
