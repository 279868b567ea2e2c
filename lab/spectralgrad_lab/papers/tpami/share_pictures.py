"""The share that the series leaves out, as a surface and as contours (Fig. 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

import spectralgrad as sg

from ..drawing import COLORS, blank, caption
from ..registry import computes, draws
from ..value_conditions import Value

DEGREES = 31
POINTS = {"A": (0.05, 9), "B": (0.20, 9), "C": (0.05, 19)}
"""Name → share left out and degree."""


@computes("tpami/figure-4")
def shares() -> Mapping[str, Value]:
    """x^(K+1) for x from 0 to 1 and K from 0 to 30, as the library's rule states it, and the points of the figure."""
    x = torch.linspace(0, 0.999, 51, dtype=torch.float64)
    pairs = torch.stack([x, torch.ones_like(x)], -1)
    surface = torch.stack([sg.Taylor(degree=K).bias(pairs)[:, 1, 0] for K in range(DEGREES)])
    points = [share ** (1 / (degree + 1)) for share, degree in POINTS.values()]
    return {
        "x": [round(v, 6) for v in x.tolist()],
        "surface": [[round(v, 5) for v in row] for row in surface.tolist()],
        "points": [round(v, 6) for v in points],
        "small": float((surface < 0.05).double().mean()),
    }


@draws("tpami/figure-4")
def draw_shares(values: Mapping[str, Any]) -> Any:
    """(a) the surface with both curves, (b) its contours with the points A, B and C."""
    figure = blank(10.4, 4.4)
    surface = figure.add_subplot(1, 2, 1, projection="3d")
    x, K = np.meshgrid(values["x"], np.arange(DEGREES))
    Z = np.array(values["surface"])
    surface.plot_surface(x, K, Z, cmap="viridis", alpha=0.8, linewidth=0, rasterized=True)
    plane: Any = figure.add_subplot(1, 2, 2)
    mesh = plane.contourf(x, K, Z, levels=np.linspace(0, 1, 21), cmap="viridis")
    mesh.set_rasterized(True)
    figure.colorbar(mesh, ax=plane, label="share left out, $x^{K+1}$")
    degrees = np.arange(DEGREES)
    for share, color in ((0.05, "#D62728"), (0.20, "#6EC6FF")):
        curve = share ** (1 / (degrees + 1))
        surface.plot(curve, degrees, np.full(DEGREES, share), color=color, linewidth=2, zorder=5)
        plane.plot(curve, degrees, color=color, linewidth=2, label=f"{share:.0%}")
    for (name, (_, degree)), ratio in zip(POINTS.items(), values["points"], strict=True):
        plane.plot([ratio], [degree], "o", color="white", markeredgecolor="black", markersize=7)
        plane.plot([], [], " ", label=f"{name}: x = {ratio:.3f}, K = {degree}")
        plane.annotate(name, (ratio, degree), xytext=(-7, 4), textcoords="offset points", ha="right", color="white")
    plane.axvline(0.85, color=COLORS["orange"], linestyle=":", linewidth=1.2, label="x = 0.85")
    caption(plane, "$x=\\lambda_j/\\lambda_i$", "degree K", "(b) contours")
    plane.grid(visible=False)
    plane.legend(loc="upper left", fontsize=9)
    surface.set(xlabel="$x=\\lambda_j/\\lambda_i$", ylabel="degree K", zlabel="$x^{K+1}$")
    surface.set_title("(a) share left out", fontsize=10)
    surface.view_init(28, -125)
    return figure
