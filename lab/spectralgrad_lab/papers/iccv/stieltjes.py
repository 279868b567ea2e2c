"""Convergence of diagonal approximants of a Stieltjes transform (Theorems 1 and 3, section C)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spectralgrad.rules import robust_pade

from ..drawing import COLORS, canvas, dress, rounded
from ..fifty_digits import mp
from ..registry import computes, draws
from ..value_conditions import Value
from .pade_system import quotient


def legendre(n: int, z: Any) -> tuple[Any, Any]:
    """Numerator and denominator of the n-th approximant of ½∫dx/(z − x) over [−1, 1], by recurrence (Eq. 42)."""
    A, B = [mp.mpf(0), mp.mpf(1)], [mp.mpf(1), mp.mpf(z)]
    for k in range(1, n):
        for c in (A, B):
            c.append(((2 * k + 1) * z * c[k] - k * c[k - 1]) / (k + 1))
    return A[n], B[n]


def legendre_error(n: int, z: Any) -> Any:
    """f(z) − A/B for f(z) = ½ ln((z + 1)/(z − 1))."""
    A, B = legendre(n, z)
    return mp.log((z + 1) / (z - mp.mpf(1))) / 2 - A / B


def _from_moments(n: int) -> float:
    """Relative difference of t·[N−1/N] from the moments, at t = 1/2, and the recurrence at z = 2."""
    moments = [0.0] + [(k % 2 == 0) / (k + 1) for k in range(2 * n)]
    A, B = legendre(n, mp.mpf(2))
    return abs(quotient(*robust_pade(moments, n, n), 0.5) / float(A / B) - 1)


@computes("iccv/P26")
def convergence() -> Mapping[str, Value]:
    """Both sides of Eq. 47, the rates of Eq. 51 outside [a, b], and the approximants inside."""
    two, counts = mp.mpf(2), range(1, 41)
    B = legendre(3, two)[1]
    integral = mp.quad(lambda x: legendre(3, x)[1] ** 2 / (2 - x) / 2, [-1, 1])
    errors = [abs(legendre_error(n, two)) for n in counts]
    rates = [e ** (mp.mpf(1) / n) for n, e in zip(counts, errors, strict=True)]
    inside = [float(a / b) for a, b in (legendre(n, mp.mpf("0.3")) for n in range(1, 60))]
    return {
        "eq_47": float(abs(legendre_error(3, two) / (integral / B**2) - 1)),
        "error_3": float(errors[2]),
        "from_moments": [_from_moments(n) for n in (3, 5, 7)],
        "rates": [float(rates[n - 1]) for n in (10, 20, 40)],
        "rate_40": float(rates[-1]),
        "limit": float(1 / (2 + mp.sqrt(3)) ** 2),
        "without_exponent": float(errors[-1]),
        "spread_inside": max(inside[19:]) - min(inside[19:]),
        "outside_curve": rounded(errors),
        "inside_curve": rounded(abs(v - _PRINCIPAL) for v in inside[:40]),
    }


_PRINCIPAL = float(mp.log(mp.mpf("1.3") / mp.mpf("0.7")) / 2)  # principal value of the transform at 0.3


@draws("iccv/P26")
def draw_convergence(values: Mapping[str, Any]) -> Any:
    """Errors against N, outside and inside the interval."""
    figure, axes = canvas(width=6.0, height=4.0)
    count = range(1, 41)
    axes.plot(count, values["outside_curve"], "o-", color=COLORS["blue"], markersize=3, label="z = 2, outside [a, b]")
    axes.plot(count, values["inside_curve"], "s-", color=COLORS["red"], markersize=3, label="z = 0.3, inside [a, b]")
    axes.plot(count, [values["limit"] ** n for n in count], "--", color=COLORS["gray"], label="(1/r²)^N at z = 2")
    dress(axes, yscale="log", xlabel="N", ylabel="|f(z) − P(z)/Q(z)|", legend="lower left")
    axes.set_title("Approximants of ½∫dx/(z − x) over [−1, 1]", fontsize=9, loc="left")
    return figure


def _j_fraction(a: Any, b: Any, depth: int, z: Any) -> Any:
    """z + b₀ + a₁/(z + b₁ + a₂/(z + …)) down to b of the given depth; a convergent of the full fraction."""
    value = z + b[depth]
    for k in range(depth, 0, -1):
        value = z + b[k - 1] + a[k] / value
    return value


@computes("iccv/P41")
def jacobi_fractions() -> Mapping[str, Value]:
    """The order in 1/z to which convergents of a random J-fraction agree with it, and the fraction of 1/(1 − x)."""
    draw = np.random.default_rng(0)
    a, b = ([mp.mpf(float(x)) for x in draw.uniform(0.5, 1.5, 12)] for _ in range(2))
    orders = []
    for n in range(1, 5):
        near, far = (
            abs(_j_fraction(a, b, n, z) - _j_fraction(a, b, 11, z)) for z in (mp.mpf(10) ** 3, mp.mpf(10) ** 4)
        )
        orders.append(float(mp.log10(near / far)))
    reciprocal = [1.0]  # coefficients of the reciprocal of 1 + x + x² + …, whose linear part is the first term
    for k in range(1, 12):
        reciprocal.append(-sum(reciprocal[:k]))
    return {"contact": orders, "left_over": max(map(abs, reciprocal[2:]))}


@computes("iccv/P27")
def support() -> Mapping[str, Value]:
    """1/(1 − x) far from its pole, and the rank of the moment matrices of −δ₁, whose transform it is."""
    moments = [-(1.0**k) for k in range(11)]  # ∫ xᵏ dμ for μ = −δ₁
    hankel = [[[moments[i + j] for j in range(n)] for i in range(n)] for n in range(1, 6)]
    p, q = robust_pade(moments, 5, 5)
    return {
        "far": [1 / (1 - 10.0**k) for k in (1, 3, 6)],
        "moment_ranks": [int(np.linalg.matrix_rank(np.array(H))) for H in hankel],
        "denominator_degree": len(q) - 1,
        "exact": max(abs(quotient(p, q, x) * (1 - x) + 1) for x in (0.1, 0.9, 0.999)),
    }
