"""The direction of a column of K as a picture: one example (Fig. 3), and over all ratios (Fig. 11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

import spectralgrad as sg

from ..drawing import COLORS, blank, caption
from ..inputs import tensor
from ..registry import computes, draws
from ..value_conditions import Value
from .angles import RELEASED, clipped, column, residual

CLOSE = (0.02, 0.0105, 0.01)
"""The eigenvalues of section 7.2.1, the two smaller ones a little apart so that K is finite."""


@computes("tpami/figure-3")
def directions() -> Mapping[str, Value]:
    """[K_13, K_23] exact, clipped at 100 and expanded to degree 9, and ρ over the distance λ2 − λ3."""
    rules = {"exact": sg.Analytic(), "taylor": sg.Taylor(), "clip": clipped(100.0), "clip_1000": clipped(1000.0)}
    distances = np.logspace(-6, -2.1, 40).tolist()
    turns = {
        f"{name}_turns": [round(-residual(rule, 0.02, 0.01 + gap, 0.01), 4) for gap in distances]
        for name, rule in rules.items()
        if name != "exact"
    }
    clip, clip_1000, taylor = (-residual(rules[name], *CLOSE) for name in ("clip", "clip_1000", "taylor"))
    return {
        "columns": [[round(entry, 3) for entry in column(rules[name], *CLOSE)] for name in ("exact", "taylor", "clip")],
        "distances": [float(f"{gap:.6g}") for gap in distances],
        **turns,
        "clip_turn": clip,
        "clip_1000_turn": clip_1000,
        "taylor_turn": taylor,
        "advantage": clip / taylor,
    }


@draws("tpami/figure-3")
def draw_directions(values: Mapping[str, Any]) -> Any:
    """Left the three directions, right the angle by which the column is turned."""
    figure = blank(9.6, 4.2)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
    styles = (("exact", "black"), ("Taylor, degree 9", COLORS["red"]), ("clipped at 100", COLORS["blue"]))
    for (label, color), (x, y) in zip(styles, values["columns"], strict=True):
        size = (x * x + y * y) ** 0.5
        left.annotate("", (x / size, y / size), (0, 0), arrowprops={"color": color, "width": 1.5, "headwidth": 8})
        left.plot([], [], color=color, linewidth=2, label=f"{label}: [{x:.4g}, {y:.4g}]")
    caption(left, "$K_{13}$", "$K_{23}$", "directions (unit length), λ = (0.02, 0.0105, 0.01)")
    left.set(xlim=(0, 1.05), ylim=(0, 1.05), aspect="equal")
    left.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    for name, label, color in (
        ("clip", "clipped at 100", COLORS["blue"]),
        ("clip_1000", "clipped at 1000", COLORS["sky"]),
        ("taylor", "Taylor, degree 9", COLORS["red"]),
    ):
        right.plot(values["distances"], values[f"{name}_turns"], color=color, label=label)
    caption(right, "λ2 − λ3 (λ1 = 0.02, λ3 = 0.01)", "angle to the true column, degrees", "angle over the distance")
    right.set_xscale("log")
    right.legend(frameon=False)
    return figure


def residuals(q2: Tensor, q3: Tensor) -> Tensor:
    """ρ in degrees of Taylor's third column for λ = (1, q2, q3), entry by entry."""
    w = torch.stack([q3, q2, torch.ones_like(q2)], -1)
    exact, series = sg.Analytic().gaps(w), RELEASED.gaps(w)
    alpha, beta = (torch.atan2(K[..., 1, 0], K[..., 2, 0]) for K in (exact, series))
    return torch.rad2deg(beta - alpha)


@computes("tpami/figure-11")
def surfaces() -> Mapping[str, Value]:
    """ρ over q2 and q3 ≤ q2, up to q2 = 1, 0.5 and 0.01 (Eq. 42)."""
    tops, grids = (1 - 1e-6, 0.5, 0.01), []
    for top in tops:
        q = torch.linspace(0.02 * top, top, 41, dtype=torch.float64)
        q3, q2 = torch.meshgrid(q, q, indexing="ij")
        inside = q3 <= q2
        rho = residuals(q2, torch.where(inside, q3, q2))
        grids.append([[round(v, 4) if ok else None for v, ok in zip(*row, strict=True)]
                      for row in zip(rho.tolist(), inside.tolist(), strict=True)])  # fmt: skip
    known = [[v for row in grid for v in row if v is not None] for grid in grids]
    corner = tensor(1 - 1e-6 + 1e-10), tensor(1 - 1e-6)
    return {
        "tops": list(tops),
        "grids": grids,  # type: ignore[dict-item]
        "stated": float(residuals(*corner)),
        "lowest": [min(values) for values in known],
        "highest": max(max(values) for values in known),
    }


@draws("tpami/figure-11")
def draw_surfaces(values: Mapping[str, Any]) -> Any:
    """Three triangles colored by ρ, with contour lines."""
    figure = blank(12.0, 3.7)
    for axes, grid, top, lowest, name in zip(
        figure.subplots(1, 3), values["grids"], values["tops"], values["lowest"], "abc", strict=True
    ):
        rho = np.array([[np.nan if v is None else v for v in row] for row in grid])
        q = np.linspace(0.02 * top, top, len(grid))
        mesh = axes.pcolormesh(q, q, rho, cmap="viridis", shading="nearest", rasterized=True)
        axes.contour(q, q, rho, levels=6, colors="white", linewidths=0.6, linestyles="solid")
        caption(axes, "$q_2=\\lambda_2/\\lambda_1$", "$q_3=\\lambda_3/\\lambda_1$",
                f"({name}) $q_2$ ≤ {top:.3g}: lowest {lowest:.2f}°")  # fmt: skip
        axes.plot([top], [top], "o", color=COLORS["red"], clip_on=False, markersize=6)
        axes.set(xlim=(0, top * 1.02), ylim=(0, top * 1.02))
        axes.set_xticks([0, top / 2, top], ["0", f"{top / 2:.3g}", f"{top:.3g}"])
        axes.set_yticks([0, top / 2, top], ["0", f"{top / 2:.3g}", f"{top:.3g}"])
        figure.colorbar(mesh, ax=axes, label="ρ in degrees")
    return figure
