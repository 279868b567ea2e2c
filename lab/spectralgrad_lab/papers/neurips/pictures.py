"""Figure 1: the share of the gradient that k power iterations leave out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

import spectralgrad as sg

from ..drawing import COLORS, canvas, dress
from ..registry import computes, draws
from ..value_conditions import Value
from .iterations import LOST, RATIOS, needed

ITERATIONS = (1, 2, 3, 5, 7, 10, 14, 19, 24, 30, 40, 50, 60, 80, 100)


@computes("neurips/figure-1")
def surface() -> Mapping[str, Value]:
    """The share (λi/λ1)^k that the library's series of k terms leaves out, and the k where it falls below 5 %."""
    ratios = [round(0.02 * i, 2) for i in range(1, 50)] + [0.99, 0.995, 0.999]
    pairs = torch.tensor([[ratio, 1.0] for ratio in ratios], dtype=torch.float64)
    left = [sg.SVDPI(iterations=k).bias(pairs)[:, 1, 0].tolist() for k in ITERATIONS]
    below = [ratio for ratio in (*LOST, *RATIOS) if needed(ratio, 0.05) <= ITERATIONS[-1]]
    return {
        "ratios": ratios,
        "iterations": list(ITERATIONS),
        "left_out": [[float(f"{share:.6g}") for share in row] for row in left],
        "contour_ratios": below,
        "contour": [needed(ratio, 0.05) for ratio in below],
        "at_084_after_19": left[ITERATIONS.index(19)][ratios.index(0.84)],
        "at_099_after_100": left[-1][ratios.index(0.99)],
    }


@draws("neurips/figure-1")
def draw_surface(values: Mapping[str, Any]) -> Any:
    """The surface from above with its 5 % contour, and sections through it."""
    figure, (left, right) = canvas(1, 2, width=5.2, height=4.0)
    share = np.array(values["left_out"])
    levels = np.linspace(0, 1, 11)
    filled = left.contourf(values["ratios"], values["iterations"], share, levels=levels, cmap="viridis")
    figure.colorbar(filled, ax=left, label="share left out, $(\\lambda_i/\\lambda_1)^k$")
    left.plot(
        values["contour_ratios"], values["contour"], "o-", color=COLORS["red"], markersize=4, label="5 % (Table 1)"
    )
    dress(left, legend="upper left", xlabel="ratio $\\lambda_i/\\lambda_1$", ylabel="power iterations $k$")
    left.legend(loc="upper left", fontsize=8, facecolor="white")
    left.set_title("(a) the surface from above", fontsize=10, loc="left")
    for k, color in ((1, "black"), (5, "sky"), (19, "orange"), (50, "green"), (100, "purple")):
        row = values["left_out"][values["iterations"].index(k)]
        right.plot(values["ratios"], row, color=COLORS[color], label=f"$k = {k}$")
    right.axhline(0.05, color=COLORS["red"], linestyle=":", label="5 %")
    dress(right, legend="upper left", xlabel="ratio $\\lambda_i/\\lambda_1$", ylabel="share left out")
    right.set_title("(b) sections of the surface", fontsize=10, loc="left")
    return figure
