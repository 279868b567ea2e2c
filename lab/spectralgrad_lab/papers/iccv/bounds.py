"""Upper bounds of the gradient (Tables 7 and 10, sections D and F)."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from functools import reduce
from typing import Any

import mpmath
import numpy as np
import torch

import spectralgrad as sg

from ...published.printed import printed
from ..drawing import COLORS, canvas, dress, rounded
from ..inputs import EPS, tensor
from ..registry import computes, draws
from ..value_conditions import Value
from .pade_system import PUBLISHED, twenty_digits

_LINES = {
    "Taylor, degree 100": (sg.Taylor(degree=100), "orange", "-"),
    "Trunc, T = 1e10": (sg.Trunc(), "green", "-"),
    "TopN, second one discarded": (sg.TopN(keep=1), "purple", "-"),
    "Padé [0/1] with a floor (ours)": (sg.Pade(), "sky", "-"),
    "SVD": (sg.Analytic(), "black", ":"),
}


def number(method: str) -> float:
    """The printed bound of a method in Table 7."""
    return float(printed("iccv")["table-7"]["rows"][method][0])


@computes("iccv/P19")
def table_7() -> Mapping[str, Value]:
    """The largest |K̂| of each rule for two eigenvalues at machine epsilon; and along equal small gaps for a picture."""
    smallest = tensor(EPS, EPS)
    shifts = [2.0**-k for k in range(1, 53)]  # 1 − shift and 1: from well apart to one unit in the last place
    curves = [[float(rule.gaps(tensor(1 - s, 1.0))[1, 0]) for s in shifts] for rule, *_ in _LINES.values()]
    return {
        "bounds": [
            float(sg.Taylor(degree=100).bound(smallest)),
            float(sg.Trunc().gaps(tensor(EPS, 2 * EPS)).abs().max()),
            float(sg.TopN(keep=1).gaps(tensor(EPS / 2, EPS)).abs().max()),
            float(sg.Analytic().gaps(smallest).abs().max()),
        ],
        "shifts": shifts,
        "curves": [rounded(curve) for curve in curves],
    }


@draws("iccv/P19")
def draw_table_7(values: Mapping[str, Any]) -> Any:
    """K̂ of each rule against the distance of two eigenvalues."""
    figure, axes = canvas(width=6.4, height=4.2)
    for (label, (_, color, line)), curve in zip(_LINES.items(), values["curves"], strict=True):
        axes.plot(values["shifts"], curve, color=COLORS[color], linestyle=line, label=label)
    axes.axhline(101, color=COLORS["gray"], linewidth=0.8, linestyle="--")
    axes.annotate("K + 1 = 101", (1e-12, 101), xytext=(0, 4), textcoords="offset points", fontsize=8)
    axes.invert_xaxis()
    dress(axes, xscale="log", yscale="log", xlabel="λ1 − λ2 with λ1 = 1", ylabel="entry of K̂", legend="upper left")
    axes.set_title("Entries of K̂ for two eigenvalues that approach each other", fontsize=9, loc="left")
    return figure


def _sums() -> dict[str, float]:
    """P(1)/Q(1) at 20 digits, Q(1) summed upwards, downwards, exactly rounded, and in 200 random orders."""
    p, q = twenty_digits()
    with mpmath.workdps(20):
        generator, above = np.random.default_rng(0), mpmath.fsum(p)
        orders = [generator.permutation(len(q)) for _ in range(200)]
        sums = [reduce(operator.add, (q[i] for i in order)) for order in orders]
        upwards, downwards = reduce(operator.add, q), reduce(operator.add, reversed(q))
        found = {
            "upwards": float(above / upwards) if upwards else math.inf,
            "downwards": float(above / downwards) if downwards else math.inf,
            "fsum": float(above / mpmath.fsum(q)),
            "positive": sum(above / s > 0 for s in sums if s),
            "negative": sum(above / s < 0 for s in sums if s),
            "one_unit": float(abs(above)) * 2.0**70,  # for Q(1) = 2⁻⁷⁰, one unit of numbers with 20 digits
        }
    return found


@computes("iccv/P20")
def pade_at_one() -> Mapping[str, Value]:
    """P(1)/Q(1), whose denominator is zero in exact arithmetic, in several orders of summation and precisions.

    A sum that rounds after each addition returns its own rounding errors only, so their sign depends on the order. The
    built-in sum carries these errors along from Python 3.12 on; hence the additions are written out.
    """
    q = PUBLISHED.coefficients()[1]
    generator = np.random.default_rng(0)
    sums = [reduce(operator.add, generator.permutation(q).tolist()) for _ in range(200)]
    found, K = _sums(), PUBLISHED.gaps(tensor(0.5, 1.0, 1.0))
    return {
        **found,
        "one_value": found["positive"] == 0 or found["negative"] == 0,
        "signs_in_double": min(sums) < 0 < max(sums),
        "largest_sum": max(map(abs, sums)) / EPS,
        "ratio_of_bounds": number("SVD-Padé") / (number("Padé at 1") / EPS),
        "bound_from_upwards": abs(found["upwards"]) / EPS,
        "ordinary_entry": float(K[2, 0]),
        "largest_entry": float(K.abs().max()),
    }


@computes("iccv/P21")
def smallest_number() -> Mapping[str, Value]:
    """The ε that the printed bounds imply, the smallest positive double, and two far smaller eigenvalues."""
    values = tensor(1e-300, 3e-300)
    w = sg.eigh(torch.diag(values)).eigenvalues
    return {
        "implied": [101 / number("SVD-Taylor") / EPS, 1 / number("SVD-TopN") / EPS],
        "smallest": math.ulp(0.0) / EPS,
        "resolved": float((w / values - 1).abs().max()),
        "gap": float(sg.Pade().gaps(w)[1, 0]),
    }


@computes("iccv/P23")
def topn() -> Mapping[str, Value]:
    """K̂ of SVD-TopN between two kept eigenvalues, against the printed bound 1/λ_N with λ_N = 1 − 2⁻⁵³."""
    w = tensor(EPS, 1 - 2.0**-53, 1.0)
    rule = sg.TopN(keep=2)
    largest = float(rule.gaps(w)[2, 1])
    return {
        "bound": float(1 / w[1]),
        "entry": largest,
        "over_table_7": largest / number("SVD-TopN"),
        "library_bound": float(rule.bound(w)),
        "tie": float(sg.Analytic().gaps(tensor(1.0, 1.0))[0, 1]),
    }


@computes("iccv/P24")
def single_precision() -> Mapping[str, Value]:
    """The bounds in float32, where ε is 2⁻²³, and the largest entries that occur there."""
    eps = torch.finfo(torch.float32).eps
    close = torch.tensor([[1 - k * eps / 2, 1.0] for k in range(1, 257)], dtype=torch.float32)
    largest = torch.finfo(torch.float32).max
    pade = PUBLISHED.gaps(close)[:, 1, 0]
    return {
        "taylor": 101 / eps,
        "pade": float(pade.abs().max()),
        "pade_negative": int((pade < 0).sum()),
        "share": max(101 / eps, float(pade.abs().max()) / eps) / largest,
        "printed_share": number("SVD-Padé") / largest,
    }
