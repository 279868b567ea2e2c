r"""SVD-Padé: a numerically sound version and the published one.

The ICCV paper evaluates :math:`1/(1-x)` by its [50/50] Padé approximant. The matrix of the Toeplitz system for the
denominator consists of ones, so it has rank one instead of fifty (claim P14). Its computed solution is rounding noise,
numerator and denominator share a random factor only approximately, and a spurious pole near 0.9973 results (claim P15).
A construction that determines the rank finds the right degree, [0/1], which is :math:`1/(1-x)` itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..autograd.pairwise import differences, floored, identity_mask, norm, resolution
from ..precision import reciprocal, saturated
from .base import require
from .released_form import PublishedRule, repaired

__all__ = ["Pade"]


@dataclass(frozen=True)
class Pade(PublishedRule):
    r"""``svd-pade``: the Padé approximant of :math:`1/(1-x)`, which is [0/1], with a floor on :math:`1-x`.

    With :math:`y=1-x=(\lambda_i-\lambda_j)/\ell`, :math:`\ell=\max(|\lambda_i|,|\lambda_j|)` (no smaller than
    the eigensolver's resolution :math:`\epsilon\|A\|`) and :math:`\phi` the floor,

    .. math:: \hat K_{ij}=\frac1\ell\,\frac{y}{\max(|y|,\phi)^2} .

    It is exact for :math:`|y|\ge\phi` and decreases linearly to zero at the tie below that, so it is continuous,
    skew-symmetric and bounded by :math:`1/(\ell\phi)`. This is the default for decompositions.

    Args:
        floor: :math:`\phi`; the default is :math:`64\,\epsilon` of the working precision (1.4e-14 in float64,
            7.6e-6 in float32): eigenvectors of closer eigenvalues are not determined by the stored matrix.
        faithful: evaluate the paper's degenerate [degree/2 / degree/2] coefficients with its sign rule at
            ties instead. For comparison only.
        degree: total degree of the requested approximant (100 in the paper).

    Example:
        >>> Pade().gaps(torch.tensor([1.0, 1.0, 3.0]))
        tensor([[ 0.0000,  0.0000, -0.5000],
                [ 0.0000,  0.0000, -0.5000],
                [ 0.5000,  0.5000,  0.0000]])
        >>> Pade().coefficients()
        ((1.0,), (1.0, -1.0))

    Reference: Song, Sebe and Wang, ICCV 2021, Eq. 17-20, with the construction of :func:`robust_pade`.
    """

    name: ClassVar[str] = "svd-pade"
    summary: ClassVar[str] = "1/(λi − λj) exact above a floor on 1 − λj/λi, zero at ties"
    reference: ClassVar[str] = "ICCV 2021, Eq. 17–20"
    floor: float | None = None
    faithful: bool = False
    degree: int = 100
    clamp: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.floor is None or 0 < self.floor < math.inf, self, "floor", "> 0 and finite")
        require(self.degree >= 2, self, "degree", "≥ 2")

    @property
    def skew(self) -> bool:
        return not self.faithful

    @property
    def exact_apart(self) -> bool:
        return not self.faithful and self.floor is None and self.clamp is None and type(self).gaps is Pade.gaps

    def gaps(self, w: Tensor) -> Tensor:
        if self.faithful:
            return self._faithful_gaps(w)
        gap, floor = differences(w), self._floor(w)
        size = floored(w.detach())
        cut = floor * size
        exact = (gap.abs() > cut) & (gap != 0)
        slope = reciprocal(cut, cut > torch.finfo(w.dtype).tiny)
        inside = (gap * slope * slope).detach()  # below the floor the gap is noise; its derivative would amplify it
        return torch.where(exact, reciprocal(gap, exact), inside)

    def fused_gaps(self, w: Tensor) -> Tensor | float | None:
        kind = type(self)
        own = not self.faithful and kind.gaps is Pade.gaps and kind.weighed is Pade.weighed
        return self._floor(w) if own else super().fused_gaps(w)

    def bound(self, w: Tensor) -> Tensor:
        if self.faithful:
            return super().bound(w)
        if w.shape[-1] < 2:
            return torch.zeros_like(norm(w))
        size = floored(w.detach())
        worst = reciprocal(size, size > 0).masked_fill(identity_mask(w), 0).amax((-2, -1))
        return saturated(worst / self._floor(w))

    def coefficients(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the coefficients of numerator and denominator as evaluated, constant term first."""
        half = self.degree // 2
        if self.faithful:
            return faithful_pade(half)
        p, q = robust_pade([1.0] * (self.degree + 1), half, half)
        return tuple(p), tuple(q)

    def _floor(self, w: Tensor) -> float:
        return 64 * resolution(w.dtype) if self.floor is None else self.floor

    def _faithful_gaps(self, w: Tensor) -> Tensor:
        """Return the gaps of the released code: eigenvalues clamped at 2.2e-16, overflow set to the largest entry."""
        clamped = w.clamp_min(resolution(torch.float64))
        big = torch.maximum(clamped.unsqueeze(-1), clamped.unsqueeze(-2))
        x = torch.minimum(clamped.unsqueeze(-1), clamped.unsqueeze(-2)) / big
        p, q = self.coefficients()
        K = _polynomial(p, x) / _polynomial(q, x) / big
        K = torch.where(differences(w) >= 0, K, -K)
        return repaired(K.masked_fill(identity_mask(w), 0))


def robust_pade(series: Sequence[float], m: int, n: int, tolerance: float = 1e-14) -> tuple[list[float], list[float]]:
    r"""Compute the [m/n] Padé approximant of a power series, reduced to the smallest possible degrees.

    The denominator is the null vector of a Toeplitz matrix of the coefficients. The rank of that matrix determines the
    true degree, so numerator and denominator have no common factors.

    Args:
        series: Taylor coefficients :math:`a_0, a_1, \dots`, at least m + n + 1 of them.
        m, n: the requested degrees of numerator and denominator.
        tolerance: singular values below ``tolerance`` times the largest coefficient count as zero.

    Returns:
        numerator and denominator, constant term first, denominator normalised to start with 1.

    Example:
        >>> robust_pade([1.0] * 101, 50, 50)
        ([1.0], [1.0, -1.0])

    Reference: Gonnet, Güttel and Trefethen, Robust Padé approximation via SVD, SIAM Review 55 (2013).
    """
    if len(series) < m + n + 1:
        raise ValueError(f"robust_pade: expected at least {m + n + 1} coefficients for [{m}/{n}], got {len(series)}")
    a = np.asarray(series[: m + n + 1], dtype=np.float64)
    while n > 0:
        toeplitz = np.array([[a[i - j] if i >= j else 0.0 for j in range(n + 1)] for i in range(m + n + 1)])
        lower = toeplitz[m + 1 :]
        values = np.linalg.svd(lower, compute_uv=False)
        rank = int(np.sum(values > tolerance * max(np.abs(a).max(), np.finfo(float).tiny)))
        if rank == n:
            q = np.linalg.svd(lower)[2][-1]
            return _trim(toeplitz[: m + 1] @ q, q, tolerance)
        m, n = max(m - (n - rank), 0), rank
        a = a[: m + n + 1]
    return _trim(a[: m + 1], np.array([1.0]), tolerance)


def _trim(p: np.ndarray, q: np.ndarray, tolerance: float) -> tuple[list[float], list[float]]:
    """Drop negligible common powers of x and trailing coefficients; scale so that q starts with 1."""
    shift = int(np.argmax(np.abs(q) > tolerance))
    p, q = p[shift:], q[shift:]
    p, q = p[: _length(p, tolerance)] / q[0], q[: _length(q, tolerance)] / q[0]
    return [round(float(c), 14) for c in p], [round(float(c), 14) for c in q]


def _length(c: np.ndarray, tolerance: float) -> int:
    return int(np.max(np.nonzero(np.abs(c) > tolerance)[0], initial=0)) + 1


@lru_cache(maxsize=4)
def faithful_pade(half: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the paper's coefficients: series differentiated numerically (20 digits), singular system solved as is."""
    import mpmath

    with mpmath.workdps(20):
        series = mpmath.taylor(lambda x: 1 / (1 - x), 0, 2 * half)
        p, q = mpmath.pade(series, half, half)
        return tuple(float(c) for c in p), tuple(float(c) for c in q)


def _polynomial(coefficients: Sequence[float], x: Tensor) -> Tensor:
    total = torch.zeros_like(x)
    for c in reversed(coefficients):
        total = total * x + c
    return total
