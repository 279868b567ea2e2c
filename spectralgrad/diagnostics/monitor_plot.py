"""Plots the records of a monitor."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SpectralError

if TYPE_CHECKING:
    from .monitor import Monitor

_PANELS = (
    ("condition", "condition number", "log"),
    ("rank", "numerical rank", "linear"),
    ("gap", "smallest relative gap", "log"),
    ("gradient_norm", "norm of the gradient", "log"),
)


def draw(monitor: Monitor, path: str | Path | None = None) -> Any:
    """Plot four panels over the steps, one line per layer; returns the figure and writes it if a path is given."""
    if find_spec("matplotlib") is None:
        raise SpectralError("plotting requires matplotlib: pip install -e '.[plots]'")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.4), dpi=150, facecolor="white", layout="constrained")
    panels = figure.subplots(2, 2, sharex=True).flatten()
    layers = list(dict.fromkeys(record.layer for record in monitor.records))
    for axes, (quantity, label, scale) in zip(panels, _PANELS, strict=True):
        for layer in layers:
            steps, values = monitor.series(quantity, layer)
            shown = [(s, v) for s, v in zip(steps, values, strict=True) if scale == "linear" or 0 < v < float("inf")]
            axes.plot(*(zip(*shown, strict=True) if shown else ([], [])), marker=".", linewidth=1.4, label=layer)
        axes.set(yscale=scale, title=label)
        axes.grid(color="#E6E6E6", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[2:]:
        axes.set_xlabel("training pass")
    if layers:
        panels[0].legend(frameon=False, fontsize=8)
    if path is not None:
        figure.savefig(Path(path))
    return figure
