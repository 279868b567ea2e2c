"""The look that the figures of this paper share."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

COLORS = ("#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
"""Colors that color-blind readers can tell apart (Okabe and Ito)."""


def figure_of(width: float, height: float) -> Figure:
    """An empty figure of a size in inches."""
    return Figure(figsize=(width, height), facecolor="white", layout="constrained")


def dressed(axes: Any, x: str, y: str, title: str = "") -> None:
    """Label the axes and draw a light grid."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if title:
        axes.set_title(title, fontsize=10)
    axes.grid(color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
