"""The linear system for the Padé coefficients, and what comes out of it (Eq. 17–19, sections 4.2–4.4, C)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

import spectralgrad as sg
from spectralgrad.rules import robust_pade

from ..fifty_digits import mp
from ..inputs import EPS, pair_gap
from ..registry import computes
from ..value_conditions import Value

PUBLISHED = sg.Pade(faithful=True)
"""The paper's [50/50] approximant: coefficients from mpmath with 20 digits, as in the released code."""
EXPONENTIAL = [1 / math.factorial(k) for k in range(8)]


def system(a: Sequence[float], m: int, n: int) -> NDArray[np.float64]:
    """The matrix of Eq. 19 for the denominator of [m/n]."""
    return np.array([[a[m + i - j] for j in range(1, n + 1)] for i in range(1, n + 1)])


def solve(a: Sequence[float], m: int, n: int, last: float) -> tuple[list[float], list[float]]:
    """Eq. 19 solved for [m/n], with the coefficient ``last`` in the first column of the last line."""
    right = [-a[m + i] for i in range(1, n)] + [-last]
    q = [1.0, *np.linalg.solve(system(a, m, n), right).tolist()]
    return [sum(q[j] * a[i - j] for j in range(min(i, n) + 1)) for i in range(m + 1)], q


def quotient(p: Sequence[float], q: Sequence[float], x: float) -> float:
    """P(x)/Q(x), constant terms first."""
    return float(np.polyval(p[::-1], x) / np.polyval(q[::-1], x))


def deviation(rule: sg.GapMethod, x: float) -> float:
    """|K̂(1 − x) − 1|, the relative error of a rule for 1/(1 − x); the difference 1 − x is exact for x ≥ 1/2."""
    return abs(pair_gap(rule, x) * (1 - x) - 1)


@cache
def twenty_digits() -> tuple[list[Any], list[Any]]:
    """The published coefficients before they are rounded to double precision."""
    with mpmath.workdps(20):
        found: tuple[list[Any], list[Any]] = mpmath.pade(mpmath.taylor(lambda x: 1 / (1 - x), 0, 100), 50, 50)
    return found


@cache
def spurious_pole() -> float:
    """The zero of the published denominator inside (0, 1), but for the rounding noise at 1."""
    q = PUBLISHED.coefficients()[1]
    (start,) = (z.real for z in np.roots(q[::-1]) if abs(z.imag) < 1e-9 and 0 < z.real < 0.9999)
    return float(mp.findroot(lambda x: mp.polyval([mp.mpf(c) for c in q[::-1]], x), start))


@computes("iccv/P12")
def last_line() -> Mapping[str, Value]:
    """[3/3] of exp at 1/2 from Eq. 19 with a_(M+N) and with the printed a_(M+N+1) in the last line."""
    a = EXPONENTIAL
    meant, printed, ours = solve(a, 3, 3, a[6]), solve(a, 3, 3, a[7]), robust_pade(a, 3, 3)
    errors = [abs(quotient(*pq, 0.5) - math.exp(0.5)) for pq in (printed, meant)]
    apart = max(abs(x - y) for one, other in zip(ours, meant, strict=True) for x, y in zip(one, other, strict=True))
    return {"printed": errors[0], "meant": errors[1], "ours_and_meant": apart}


@computes("iccv/P13")
def degrees() -> Mapping[str, Value]:
    """M − N of the approximant in use, the order it has for exp, and which [M/N] have M + N = 100."""
    p, q = PUBLISHED.coefficients()
    splits = [(m, 100 - m) for m in range(101)]
    exact = {f: math.log2(abs(quotient(*robust_pade(EXPONENTIAL, *f), 2**-4) - math.exp(2**-4))) for f in _NEAR}
    coarse = {f: math.log2(abs(quotient(*robust_pade(EXPONENTIAL, *f), 2**-3) - math.exp(2**-3))) for f in _NEAR}
    return {
        "difference": len(p) - len(q),
        "same_degree": sum(m == n for m, n in splits),
        "one_more": sum(m == n + 1 for m, n in splits),
        "orders": [round(coarse[f] - exact[f]) for f in _NEAR],
    }


_NEAR = ((1, 1), (2, 1))


@computes("iccv/P14")
def singular() -> Mapping[str, Value]:
    """The rank of the system for [50/50] of the geometric series, and what mpmath's solver says to it."""
    ones = [1.0] * 101

    def solved(digits: int) -> str:
        with mpmath.workdps(digits):
            try:
                mpmath.pade([mpmath.mpf(1)] * 101, 50, 50)
            except ZeroDivisionError:
                return "singular"
        return "solved"

    p, q = robust_pade(ones, 50, 50)
    with mpmath.workdps(20):
        series = mpmath.taylor(lambda x: 1 / (1 - x), 0, 100)
        noise = float(max(abs(c - 1) for c in series))
    return {
        "rank": int(np.linalg.matrix_rank(system(ones, 50, 50))),
        "solver": [solved(digits) for digits in (15, 20, 50)],
        "noise": noise,
        "degrees": [len(p) - 1, len(q) - 1],
        "coefficients": [*p, *q],
    }


@computes("iccv/P15", "iccv/P22")
def spurious_poles() -> Mapping[str, Value]:
    """Poles and zeros of the published quotient inside the unit disc, and its values next to the real pole."""
    p, q = PUBLISHED.coefficients()
    poles, zeros = np.roots(q[::-1]), np.roots(p[::-1])
    inside = poles[np.abs(poles) < 0.9999]
    x = spurious_pole() + np.arange(-40, 41) * 2.0**-53
    values = [pair_gap(PUBLISHED, v) for v in x]
    drops = [b - a for a, b in pairwise(values)]
    return {
        "residual": float(np.abs(np.convolve(p, [1, -1]) - np.r_[q, 0]).max() / np.abs(q).max() / EPS),
        "pairs": len(inside),
        "distance": float(np.abs(inside[:, None] - zeros).min(1).max()),
        "pole": spurious_pole(),
        "worst": max(deviation(PUBLISHED, v) for v in x),
        "lowest_order": max(deviation(sg.Pade(), v) for v in x),
        "falls": sum(d < 0 for d in drops),
        "monotone": all(d >= 0 for d in drops),
    }


@computes("iccv/P25")
def uniqueness() -> Mapping[str, Value]:
    """Two sets of coefficients for [50/50] of 1/(1 − x): how far their functions and their coefficients differ."""
    first, second = PUBLISHED.coefficients(), robust_pade([1.0] * 101, 50, 50)
    points = [0.1, 0.3, 0.5, 0.7, 0.9, 0.99]
    functions = max(abs(quotient(*first, x) / quotient(*second, x) - 1) for x in points)
    padded = [[*c, *[0.0] * (51 - len(c))] for c in second]
    apart = max(abs(x - y) for one, other in zip(first, padded, strict=True) for x, y in zip(one, other, strict=True))
    free = 50 - int(np.linalg.matrix_rank(system([1.0] * 101, 50, 50)))
    return {"functions": functions, "coefficients": apart, "free": free}
