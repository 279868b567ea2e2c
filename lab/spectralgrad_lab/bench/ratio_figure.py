"""Plot the ratios: batches and sizes as a heat map, and lines against size. matplotlib is imported on first use."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from .cost_figure import dress, require
from .goals import grid_axes, rows
from .plotted_series import by_size, grid, short
from .stored_outcomes import Run

# Okabe and Ito, twice: the second time with another marker.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^")
_DEEP = 5.0  # log2 of the ratio that has the deepest color


def ratios(path: str | Path, run: Run) -> None:
    """Plot how many times faster each cell is.

    Args:
        path: file to write; its extension selects the format (png, svg, pdf).
        run: what was measured.

    Raises:
        SpectralError: matplotlib is not installed.
    """
    require()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5.2), dpi=150, facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.1))
    _heat(left, grid(run.outcomes))
    lines = by_size(rows(run.outcomes))
    for k, (name, points) in enumerate(lines.items()):
        color, marker = _COLORS[k % len(_COLORS)], _MARKERS[k // len(_COLORS) % len(_MARKERS)]
        right.plot(*zip(*points, strict=True), color=color, marker=marker, label=name, markersize=5)
    dress(right, "size, √(mn)")
    right.axhline(1, color="#999999", linewidth=1)
    right.yaxis.set_major_formatter("{x:g}")
    right.set_ylabel("times faster")
    right.set_title("against size", fontsize=10, loc="left")
    if lines:
        figure.legend(*right.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    figure.suptitle(run.headline, fontsize=9, x=0.01, ha="left")
    figure.savefig(Path(path))


def _heat(axes: Any, found: dict[tuple[int, int], float]) -> None:
    batches, sizes = grid_axes()
    shown = [[math.log2(found[b, d]) if (b, d) in found else math.nan for b in batches] for d in sizes]
    axes.set_facecolor("#F2F2F2")  # cells that were not measured
    axes.imshow(shown, cmap="RdBu", vmin=-_DEEP, vmax=_DEEP, aspect="auto")
    for (b, d), ratio in found.items():
        color = "white" if abs(math.log2(ratio)) > 0.7 * _DEEP else "black"
        axes.text(batches.index(b), sizes.index(d), short(ratio), ha="center", va="center", fontsize=9, color=color)
    axes.set_xticks(range(len(batches)), [str(b) for b in batches])
    axes.set_yticks(range(len(sizes)), [str(d) for d in sizes])
    axes.set(xlabel="batch B", ylabel="size d")
    axes.set_title("eigh, float32: times faster than torch.linalg.eigh", fontsize=10, loc="left")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
