"""How often two eigenvalues of a random covariance matrix are close (section 1, Fig. 1(a))."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..drawing import COLORS, blank, caption
from ..registry import computes, draws
from ..value_conditions import Value

THRESHOLDS = tuple(2.0**-k for k in (10, 11, 12, 13, 14))
DRAWS = {6: 20000, 12: 6000, 25: 3000, 50: 1500, 100: 700, 150: 500, 300: 120, 600: 30}
"""Dimension → number of matrices."""


def covariance_matrices(d: int, count: int, law: Callable[..., Tensor], seed: int = 0) -> Tensor:
    """X̃X̃ᵀ (count, d, d) of n = 2d points with entries of a law (``torch.rand`` or ``torch.randn``), rows centered."""
    X = law(count, d, 2 * d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    X = X - X.mean(-1, keepdim=True)
    return X @ X.mT


@cache
def gaps(d: int, count: int, law: Callable[..., Tensor], seed: int = 0) -> Tensor:
    """The distances of neighboring eigenvalues (count, d − 1) of such matrices."""
    at_once = max(1, 6000 // d)
    parts = [
        torch.linalg.eigvalsh(covariance_matrices(d, min(at_once, count - start), law, seed + start)).diff()
        for start in range(0, count, at_once)
    ]
    return torch.cat(parts)


def closeness(d: int, threshold: float, law: Callable[..., Tensor] = torch.rand, scale: float = 1.0) -> float:
    """The probability that two eigenvalues are within a threshold of each other.

    Eigenvalues repel: the number of close pairs grows with the square of the distance. It is counted at a distance
    where each matrix has about one pair in ten, and scaled down.
    """
    distances = gaps(d, DRAWS[d], law) * scale
    wide = float(distances.flatten().kthvalue(max(100, len(distances) // 10)).values)
    pairs = float((distances < wide).sum()) / len(distances) * (threshold / wide) ** 2
    return -math.expm1(-pairs)


def exponent(d: int) -> float:
    """p in P ∝ δ^p, from the numbers of pairs at two distances that differ by a factor of two."""
    distances = gaps(d, DRAWS[d], torch.rand).flatten()
    wide = float(distances.kthvalue(DRAWS[d]).values)
    return math.log2(float((distances < wide).sum()) / float((distances < wide / 2).sum()))


@computes("tpami/R2")
def close_eigenvalues() -> Mapping[str, Value]:
    """P(two eigenvalues within 2⁻¹⁰) at d = 150 for four readings of "covariance matrix" in Fig. 1(a)."""
    near, d = THRESHOLDS[0], 150
    return {
        "uniform": closeness(d, near),
        "gaussian": closeness(d, near, torch.randn),
        "uniform_over_n": closeness(d, near, scale=1 / (2 * d)),
        "gaussian_over_n": closeness(d, near, torch.randn, scale=1 / (2 * d)),
        "exponent": exponent(d),
        "growth": closeness(d, near) / closeness(6, near),
    }


@computes("tpami/figure-1a")
def probabilities() -> Mapping[str, Value]:
    """P(two eigenvalues within δ) over the dimension, for five thresholds δ and uniform entries."""
    curves = [[float(f"{closeness(d, threshold):.4g}") for d in DRAWS] for threshold in THRESHOLDS]
    rises = all(a < b for curve in curves for a, b in pairwise(curve))
    gaussian = [float(f"{closeness(d, THRESHOLDS[0], torch.randn):.4g}") for d in (6, 25, 100, 150)]
    return {
        "dimensions": list(DRAWS),
        "curves": curves,
        "gaussian": gaussian,
        "gaussian_dimensions": [6, 25, 100, 150],
        "at_150": curves[0][list(DRAWS).index(150)],
        "gaussian_at_150": gaussian[-1],
        "rises": rises,
    }


@draws("tpami/figure-1a")
def draw_probabilities(values: Mapping[str, Any]) -> Any:
    """Five curves over the dimension, and the level of 0.1 % that the text names."""
    figure = blank(7.2, 4.4)
    axes = figure.subplots()
    names = ("blue", "green", "orange", "red", "purple")
    for exponent_, color, curve in zip(range(10, 15), names, values["curves"], strict=True):
        axes.plot(
            values["dimensions"], curve, "o-", color=COLORS[color], markersize=4, label=f"$2^{{-{exponent_}}}$, uniform"
        )
    axes.plot(values["gaussian_dimensions"], values["gaussian"], "s--", color="#555555", markersize=4,
              label="$2^{-10}$, Gaussian")  # fmt: skip
    axes.axhline(1e-3, color="#999999", linewidth=0.9, linestyle=":")
    axes.annotate("0.1 %", (6, 1.1e-3), color="#555555", fontsize=9, va="bottom")
    axes.plot([150], [values["at_150"]], "o", color="none", markeredgecolor="black", markersize=11)
    axes.annotate(f"d = 150: {100 * values['at_150']:.2g} %", (150, values["at_150"]), xytext=(-12, 12),
                  textcoords="offset points", ha="right", fontsize=9)  # fmt: skip
    caption(axes, "matrix dimension d (n = 2d points, $XX^T$)", "probability that two eigenvalues are this close")
    axes.set(xscale="log", yscale="log")
    ticks = [6, 12, 25, 50, 100, 150, 300, 600]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    handles = axes.get_legend_handles_labels()
    figure.legend(*handles, loc="outside right center", frameon=False, title="threshold, entries")
    return figure
