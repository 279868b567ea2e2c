"""The direction of a column of K after Taylor expansion and after clipping (Eq. 34–61, Fig. 3 and 11)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

import spectralgrad as sg

from ..inputs import tensor, uniform
from ..registry import computes
from ..value_conditions import Value

RELEASED = sg.Taylor(faithful=True)
"""Taylor's rule with the signs that the paper prints for equal eigenvalues."""
EXAMPLE = (0.02, 0.01, 0.01)
"""The eigenvalues of section 7.2.1."""


def column(rule: sg.GapMethod, *descending: float) -> tuple[float, float]:
    """[K̂_13, K̂_23] for three eigenvalues in the paper's order."""
    K = rule.gaps(tensor(*descending[::-1]))
    return float(K[2, 0]), float(K[1, 0])


def angle(rule: sg.GapMethod, *descending: float) -> float:
    """The angle of [K̂_13, K̂_23] with the first axis in degrees: β, or α for the exact rule."""
    first, second = column(rule, *descending)
    return math.degrees(math.atan2(second, first))


def residual(rule: sg.GapMethod, *descending: float) -> float:
    """ρ = β − α in degrees (Eq. 41)."""
    return angle(rule, *descending) - angle(sg.Analytic(), *descending)


def clipped(threshold: float) -> sg.GapMethod:
    """Clipping at ``threshold``, which replaces the infinite entries of Eq. 55."""
    return sg.Trunc(threshold=threshold, faithful=True)


@computes("tpami/R24")
def closed_forms() -> Mapping[str, Value]:
    """K̂_13, K̂_23, tan α and tan β against Eq. 35–40 for the eigenvalues 1, 0.6, 0.5."""
    a, b, c = 1.0, 0.6, 0.5
    first, second = column(sg.Taylor(), a, b, c)
    ratio = (a - c) / (b - c)
    tangent = math.tan(math.radians(angle(sg.Taylor(), a, b, c)))
    powers = ratio * (1 - (c / b) ** 10) / (1 - (c / a) ** 10)
    literal = ratio * (1 - c / b**10) / (1 - c / a**10)  # the power on the denominator only, as Eq. 40 is set
    return {
        "entries": [
            first / (sum((c / a) ** k for k in range(10)) / a) - 1,
            second / ((1 - (c / b) ** 10) / (b - c)) - 1,
        ],
        "tan_beta": tangent / powers - 1,
        "tan_alpha": math.tan(math.radians(angle(sg.Analytic(), a, b, c))) / ratio - 1,
        "literal": tangent / literal - 1,
    }


@computes("tpami/R25")
def stated_minimum() -> Mapping[str, Value]:
    """ρ at the position of Eq. 43, at a closer one, and at 2000 random positions."""
    stated = residual(sg.Taylor(), 1.0, 1 - 1e-6 + 1e-10, 1 - 1e-6)
    closer = residual(sg.Taylor(), 1.0, 1 - 2.0**-30 + 2.0**-52, 1 - 2.0**-30)
    draws = [residual(sg.Taylor(), 1.0, *q) for q in uniform(2000, 2).sort(-1, descending=True).values.tolist()]
    return {
        "stated": stated,
        "closer": closer,
        "is_minimum": closer >= stated,
        "lower": stated - closer,
        "range": [min(draws), max(draws)],
    }


@computes("tpami/R26")
def merging_eigenvalues() -> Mapping[str, Value]:
    """ρ when three eigenvalues merge, for four ratios of λ1 − λ2 to λ2 − λ3."""
    near = 2.0**-48
    limits = [residual(sg.Taylor(), 1 + (1 + ratio) * near, 1 + near, 1.0) for ratio in (1, 10, 1e3, 1e6)]
    return {"limits": limits}


def tie_of_smaller_ones(q: float) -> Mapping[str, Value]:
    """β and ρ for λ2 = λ3 = qλ1, and the lowest ρ of 1000 random positions with q3 ≤ q2 ≤ q."""
    inner = uniform(1000, 2, high=q).sort(-1, descending=True).values.tolist()
    rho = residual(RELEASED, 1.0, q, q)
    lowest = min(residual(sg.Taylor(), 1.0, *draw) for draw in inner)
    return {"beta": angle(RELEASED, 1.0, q, q), "rho": rho, "margin": lowest - rho}


@computes("tpami/R27")
def half() -> Mapping[str, Value]:
    """λ2 = λ3 = λ1/2 (Eq. 47–50)."""
    return tie_of_smaller_ones(0.5)


@computes("tpami/R29")
def hundredth() -> Mapping[str, Value]:
    """λ2 = λ3 = λ1/100 (Eq. 51–54), and what Eq. 53's 0.1^10 in place of 0.01^10 changes."""
    printed = math.degrees(math.atan(10 * 99 / (1 - 0.1**10)))
    return {**tie_of_smaller_ones(0.01), "with_misprint": printed}


def dominated(d: int, draws: int = 200) -> torch.Tensor:
    """Random spectra, ascending, whose largest eigenvalue is the sum of the others."""
    rest = uniform(draws, d - 1, seed=d)
    return torch.cat([rest, rest.sum(-1, keepdim=True)], -1).sort(-1).values


def worst_angle(w: torch.Tensor) -> float:
    """The largest angle in degrees between a column of K and Taylor's."""
    cosine = torch.cosine_similarity(sg.Analytic().gaps(w), sg.Taylor().gaps(w), dim=-2)
    return float(torch.rad2deg(torch.acos(cosine.clamp(max=1)).max()))


def worst_triple(w: torch.Tensor) -> float:
    """The largest |ρ| in degrees over all triples of neighbouring eigenvalues (section 7.1)."""
    triples = w.unfold(-1, 3, 1)  # (*, d − 2, 3), ascending
    alpha, beta = (
        torch.atan2(K[..., 1, 0], K[..., 2, 0]) for K in (sg.Analytic().gaps(triples), sg.Taylor().gaps(triples))
    )
    return float(torch.rad2deg(alpha - beta).max())


@computes("tpami/R28")
def half_of_the_energy() -> Mapping[str, Value]:
    """The largest angle over 200 spectra whose first eigenvalue holds half of the energy: all columns, and triples."""
    columns = {f"d{d}": worst_angle(dominated(d)) for d in (3, 8, 64)}
    return {**columns, "triples": [worst_triple(dominated(d)) for d in (8, 64)]}


@computes("tpami/R30")
def clipping_angles() -> Mapping[str, Value]:
    """β and ρ of clipping for the eigenvalues of section 7.2.1 and five thresholds (Eq. 55–58)."""
    thresholds = (50.0, 100.0, 500.0, 1000.0, 2000.0)
    formula = [45.0 if t <= 100 else math.degrees(math.atan(t * EXAMPLE[2])) for t in thresholds]
    found = [angle(clipped(t), *EXAMPLE) for t in thresholds]
    same = 10 / (1 - 0.5**10) / EXAMPLE[2]  # where Eq. 58 separates its second and third case
    return {
        "deviation": max(abs(a - b) for a, b in zip(found, formula, strict=True)),
        "rho": [residual(clipped(t), *EXAMPLE) for t in thresholds],
        "at_limit": residual(clipped(same), *EXAMPLE) - residual(RELEASED, *EXAMPLE),
        "limit": same * EXAMPLE[2],
    }


@computes("tpami/R31")
def large_thresholds() -> Mapping[str, Value]:
    """ρ of clipping above the threshold of Eq. 59(c), against Taylor's."""
    limit, taylor = 10 / (1 - 0.5**10) / EXAMPLE[2], residual(RELEASED, *EXAMPLE)
    above = [residual(clipped(factor * limit), *EXAMPLE) for factor in (1.01, 2.0, 10.0)]
    return {"rho": above, "taylor": taylor, "nearer": above[1] - taylor}


@computes("tpami/R32")
def example_matrices() -> Mapping[str, Value]:
    """K and K̂ of Eq. 60–61, in the paper's order."""
    w = tensor(*EXAMPLE[::-1])
    K, series, printed = (rule.gaps(w).flip(0, 1) for rule in (sg.Analytic(), sg.Taylor(), RELEASED))
    return {
        "exact": float(K[0, 2]),
        "tie": float(K[1, 2]),
        "taylor": float(series[0, 2]),
        "printed_tie": [float(printed[1, 2]), float(printed[2, 1])],
        "skew_tie": [float(series[1, 2]), float(series[2, 1])],
        "sum_of_both": float(printed[1, 2] + printed[2, 1]),
    }


@computes("tpami/R33")
def example_angles() -> Mapping[str, Value]:
    """The angles of section 7.2.1 between the third column of K, Taylor's and the clipped one."""
    third = clipped(100.0).gaps(tensor(*EXAMPLE[::-1])).flip(0, 1)[:, 2]
    return {
        "taylor": -residual(RELEASED, *EXAMPLE),
        "clip_100": -residual(clipped(1e2), *EXAMPLE),
        "clip_10000": -residual(clipped(1e4), *EXAMPLE),
        "clipped_column": [float(entry) for entry in third],
    }
