"""Errors of Taylor polynomial and Padé approximant for 1/(1 − x) (Tables 6, 8 and 9, section E)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import mpmath

import spectralgrad as sg

from ...published.printed import printed
from ..drawing import COLORS, canvas, dress, rounded
from ..fifty_digits import mp
from ..inputs import EPS, pair_gap, tensor
from ..registry import computes, draws
from ..value_conditions import Value
from .pade_system import PUBLISHED, deviation, twenty_digits

RATIOS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999)
DEGREES = (50, 100, 200, 300)
_GRID = tuple(1 - 10 ** (-k / 8) for k in range(1, 33))  # from 0.25 to 0.9999
_COLORS = ("sky", "blue", "green", "red")


def remainder(degree: int, x: float) -> float:
    """What Σ xᵏ up to the degree leaves of 1/(1 − x), summed with 400 digits."""
    with mpmath.workdps(400):
        ratio = mpmath.mpf(str(x))
        return float(1 / (1 - ratio) - mpmath.fsum(ratio**k for k in range(degree + 1)))


@computes("iccv/P11")
def taylor_bound() -> Mapping[str, Value]:
    """λ·K̂ of degree 100 at equal eigenvalues with the paper's rule, the stated bound, and K̂ just before."""
    sizes, rule = (1.0, 1e-3, EPS), sg.Taylor(degree=100)
    released = sg.Taylor(degree=100, faithful=True)
    return {
        "attained": [float(released.gaps(tensor(s, s))[0, 1]) * s for s in sizes],
        "bound": [float(rule.bound(tensor(s, s))) * s for s in sizes],
        "near": [float(rule.gaps(s * tensor(1 - 1e-9, 1.0))[1, 0]) * s for s in sizes],
    }


@computes("iccv/P16")
def taylor_errors() -> Mapping[str, Value]:
    """The remainder of Table 8, our series against it, and the printed cells that double precision cannot show."""
    errors = {f"degree_{d}": [remainder(d, x) for x in RATIOS] for d in DEGREES}
    cells = printed("iccv")["table-8"]["rows"]
    hidden = []
    for d in DEGREES:
        for x, cell, error in zip(RATIOS, cells[str(d)], errors[f"degree_{d}"], strict=True):
            half = math.ulp(1 / (1 - x)) / 2
            if float(cell) < half:
                hidden.append((float(cell) / half, error / float(cell)))
    series = [
        abs(mp.mpf(pair_gap(sg.Taylor(degree=d), x)) * (1 - mp.mpf(x)) / (1 - mp.mpf(x) ** (d + 1)) - 1)
        for d in DEGREES
        for x in RATIOS
    ]
    return {
        **errors,
        "library": float(max(series)),
        "hidden": len(hidden),
        "hidden_in_half_ulps": max(share for share, _ in hidden),
        "hidden_remainder": max(share for _, share in hidden),
        "ratios": list(RATIOS),
        "grid": rounded(_GRID),
        "curves": [rounded([remainder(d, round(x, 12)) for x in _GRID]) for d in DEGREES],
    }


@draws("iccv/P16")
def draw_taylor_errors(values: Mapping[str, Any]) -> Any:
    """The remainder against 1 − x, with the printed cells."""
    figure, axes = canvas(width=7.4, height=4.2)
    cells = printed("iccv")["table-8"]["rows"]
    for degree, color, curve in zip(DEGREES, _COLORS, values["curves"], strict=True):
        axes.plot([1 - x for x in values["grid"]], curve, color=COLORS[color], label=f"degree {degree}")
        points = [(1 - x, float(c)) for x, c in zip(RATIOS, cells[str(degree)], strict=True)]
        axes.plot(*zip(*points, strict=True), "o", color=COLORS[color], markersize=4)
    axes.plot([], [], "o", color=COLORS["gray"], markersize=4, label="printed")
    axes.plot([1 - x for x in values["grid"]], [1 / (1 - x) for x in values["grid"]], ":k", label="1/(1 − x)")
    axes.axhline(EPS / 2, color=COLORS["gray"], linewidth=0.8, linestyle="--", label="half an ulp of 1")
    axes.invert_xaxis()
    dress(
        axes,
        xscale="log",
        yscale="log",
        xlabel="1 − x, x = λj/λi",
        ylabel="error of the Taylor polynomial",
        legend="outside",
    )
    axes.set(ylim=(1e-23, 1e5))
    axes.set_title("Table 8: remainder x^(K+1)/(1 − x)", fontsize=9, loc="left")
    return figure


@computes("iccv/P17")
def pade_errors() -> Mapping[str, Value]:
    """Relative errors of the published approximant of degree 50 to 300 in double precision, and of 100 at 20 digits."""
    rules = {d: sg.Pade(faithful=True, degree=d) for d in DEGREES}
    rows = {f"degree_{d}": [deviation(rule, x) for x in RATIOS] for d, rule in rules.items()}
    p, q = twenty_digits()
    with mpmath.workdps(20):
        points = [mpmath.mpf(str(x)) for x in RATIOS]
        twenty = [float(abs(mpmath.polyval(p[::-1], x) / mpmath.polyval(q[::-1], x) * (1 - x) - 1)) for x in points]
    absolute = [error / (1 - x) for x, error in zip(RATIOS, rows["degree_100"], strict=True)]
    return {
        **rows,
        "twenty_digits": twenty,
        "absolute": absolute,
        "division": [deviation(sg.Pade(), x) for x in RATIOS],
        "curves": [rounded([deviation(rule, x) for x in _GRID]) for rule in rules.values()],
    }


@draws("iccv/P17")
def draw_pade_errors(values: Mapping[str, Any]) -> Any:
    """Errors of the Padé approximant against 1 − x, with the printed cells."""
    figure, axes = canvas(width=7.4, height=4.2)
    cells = printed("iccv")["table-9"]["rows"]
    for degree, color, curve in zip(DEGREES, _COLORS, values["curves"], strict=True):
        errors = [max(e / (1 - x), 1e-17) for x, e in zip(_GRID, curve, strict=True)]
        axes.plot([1 - x for x in _GRID], errors, color=COLORS[color], linewidth=1.2, label=f"degree {degree}")
        points = [(1 - x, float(c)) for x, c in zip(RATIOS, cells[str(degree)], strict=True)]
        axes.plot(*zip(*points, strict=True), "o", color=COLORS[color], markersize=4)
    axes.plot([], [], "o", color=COLORS["gray"], markersize=4, label="printed")
    halves = [math.ulp(1 / (1 - x)) / 2 for x in _GRID]
    axes.plot(
        [1 - x for x in _GRID], halves, "--", color=COLORS["gray"], linewidth=0.8, label="half an ulp of 1/(1 − x)"
    )
    axes.invert_xaxis()
    dress(
        axes,
        xscale="log",
        yscale="log",
        xlabel="1 − x, x = λj/λi",
        ylabel="error of the Padé approximant",
        legend="outside",
    )
    axes.set(ylim=(1e-22, 1e-5))
    axes.set_title("Table 9: rounding errors, at every degree (zero is drawn at 1e-17)", fontsize=9, loc="left")
    return figure


@computes("iccv/P18")
def next_to_the_pole() -> Mapping[str, Value]:
    """Relative errors at x = 1 − 2^(−bits) of the published approximant, of Taylor and of 1/(λi − λj)."""
    bits = (10, 20, 30, 40, 50, 52)
    plain = [deviation(sg.Analytic(), 1 - 2.0**-b) for b in bits]
    pade = [deviation(PUBLISHED, 1 - 2.0**-b) for b in bits]
    return {
        "plain": plain,
        "pade": pade,
        "taylor": [deviation(sg.Taylor(degree=100), 1 - 2.0**-b) for b in bits],
        "pade_in_units": [error / 2.0 ** (b - 60) for b, error in zip(bits, pade, strict=True)],
    }


@computes("iccv/P37")
def degree_needed() -> Mapping[str, Value]:
    """The number of terms with xᵏ = 5 % at x = 1 − 2⁻⁵², and what the library's series of that degree leaves out."""
    x = 1 - 2.0**-52
    terms = math.log(0.05) / math.log(x)
    return {"needed": terms, "left_out": float(sg.Taylor(degree=round(terms) - 1).bias(tensor(x, 1.0))[1, 0])}
