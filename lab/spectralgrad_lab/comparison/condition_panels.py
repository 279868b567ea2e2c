"""Panels of condition numbers over training: one line per treatment, on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COLORS = {
    "SVD": "#000000", "NS": "#8C510A", "BN": "#999999", "SN": "#882255", "OL": "#CC79A7", "OW": "#E69F00",
    "NOG": "#009E73", "NOG+SN": "#4477AA", "NOG+OL": "#EE6677", "NOG+OW": "#DDCC22",
    "OLR": "#56B4E9", "OLR exact": "#0072B2", "NOG+OLR": "#332288", "OW+OLR": "#AA4499", "NOG+OW+OLR": "#D55E00",
}  # fmt: skip
_LABELS = {"NS": "Newton–Schulz", "BN": "batch normalization"}


def condition_panels(panels: Mapping[str, Mapping[str, Sequence[float]]], steps: Sequence[int]) -> Any:
    """A figure with one panel per network and one line per treatment.

    Args:
        panels: title → treatment → condition numbers. The first panel has all treatments of the legend.
        steps: of the condition numbers.

    Returns:
        a matplotlib figure.

    Example:
        >>> figure = condition_panels({"first filters: 3×3": {"SVD": [1e12, 1e13], "OW": [1e3, 1e3]}}, [0, 1])
        >>> [line.get_label() for line in figure.axes[0].get_lines()]
        ['SVD', 'OW']
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(panels) + 1.6, 3.9), dpi=150, facecolor="white", layout="constrained")
    all_axes = figure.subplots(1, len(panels), squeeze=False).flatten()
    for axes, (title, lines) in zip(all_axes, panels.items(), strict=True):
        for name, values in lines.items():
            axes.plot(steps, values, label=_LABELS.get(name, name), color=COLORS[name], linewidth=1.5)
        axes.set_title(title.replace(": ", "\n", 1), fontsize=10)
        _dress(axes, [x for values in lines.values() for x in values])
    all_axes[0].set_ylabel("condition number of the covariance")
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    return figure


def _dress(axes: Any, values: Sequence[float]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set(yscale="log", xlabel="training step")
    axes.grid(color="#E6E6E6", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    if max(values) < 1e3 * min(values):  # few decades: ticks between them, as plain numbers
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda x, _: f"{x:,.0f}" if x < 1e6 else f"{x:.0e}".replace("e+", "e"))
        axes.yaxis.set_minor_formatter(NullFormatter())
