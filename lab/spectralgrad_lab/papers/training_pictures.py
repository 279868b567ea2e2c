"""Pictures of training results: one row per setting, a point with its error bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .drawing import COLORS, canvas, dress


class Panel(NamedTuple):
    """A panel of a picture.

    Attributes:
        title: above it.
        rows: names of the settings, from top to bottom.
        values: one per setting; NaN where no run completed.
        deviations: lengths of the error bars; NaN draws none.
    """

    title: str
    rows: Sequence[str]
    values: Sequence[float]
    deviations: Sequence[float]


def rows_with_bars(panels: Sequence[Panel], xlabel: str, zero: bool = False) -> Any:
    """Panels side by side.

    Args:
        panels: what to draw.
        xlabel: of all panels.
        zero: draw a line at zero, for differences.
    """
    height = 1.1 + 0.3 * max(len(panel.rows) for panel in panels)
    figure, axes = canvas(1, len(panels), width=5.0, height=height, squeeze=False)
    for place, panel in zip(axes[0], panels, strict=True):
        if zero:
            place.axvline(0, color=COLORS["gray"], linewidth=1)
        heights = range(len(panel.rows))
        place.errorbar(panel.values, heights, xerr=panel.deviations, fmt="o", color=COLORS["blue"], capsize=3)
        place.set_yticks(heights, panel.rows)
        place.set_ylim(len(panel.rows) - 0.5, -0.5)
        dress(place, legend=False, xlabel=xlabel)
        place.set_title(panel.title, fontsize=10, loc="left")
    return figure
