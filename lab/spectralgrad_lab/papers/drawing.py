"""The look that the pictures of the items share. matplotlib is imported on first use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

COLORS = {
    "black": "#000000",
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "red": "#D55E00",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "gray": "#999999",
}
"""The palette of Okabe and Ito, which colour-blind readers can tell apart."""


def rounded(values: Iterable[Any]) -> list[float]:
    """Numbers to six digits, which are enough for a picture.

    Example:
        >>> rounded([1 / 3, 2e-20 / 3])
        [0.333333, 6.66667e-21]
    """
    return [float(f"{float(value):.6g}") for value in values]


def canvas(rows: int = 1, columns: int = 1, width: float = 5.2, height: float = 3.8, **options: Any) -> tuple[Any, Any]:
    """A white figure and its axes, an array unless there is one; ``width`` and ``height`` are one panel's."""
    figure = blank(width * columns, height * rows)
    return figure, figure.subplots(rows, columns, **options)


def blank(width: float, height: float) -> Any:
    """A white figure without axes; the size is in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, facecolor="white", layout="constrained")


def caption(axes: Any, x: str, y: str, title: str = "") -> None:
    """Label a panel that has no legend, or one drawn elsewhere."""
    dress(axes, legend=False, xlabel=x, ylabel=y)
    if title:
        axes.set_title(title, fontsize=10)


def dress(axes: Any, *, legend: bool | str = True, **labels: Any) -> None:
    """Label a panel (``xlabel=``, ``yscale=`` …), with a light grid, open at the top and the right.

    ``legend`` may be a place such as ``"upper left"``, or ``"outside"`` for the right of the panel.
    """
    axes.set(**labels)
    axes.grid(color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if legend and axes.get_legend_handles_labels()[0]:
        place: dict[str, Any] = {"loc": legend if isinstance(legend, str) else "best"}
        if legend == "outside":
            place = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        axes.legend(**place, frameon=False, fontsize=8)
