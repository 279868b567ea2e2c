"""Plot the cost against d and against B. matplotlib is imported on first use."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spectralgrad.errors import SpectralError

from .goals import table
from .outcomes import Outcome
from .stored_outcomes import Run

SWEEP_SIZE = 32  # the size of the plot against B

# Contest and contestant → label, color (Okabe and Ito), marker, line.
_STYLES = {
    ("eigh", "torch"): ("torch.linalg.eigh", "#000000", "o", "--"),
    ("eigh", "ours"): ("spectralgrad eigh", "#0072B2", "o", "-"),
    ("inv_sqrt", "ns10"): ("$A^{-1/2}$ Newton–Schulz 10", "#999999", "v", "--"),
    ("inv_sqrt", "ns5"): ("$A^{-1/2}$ Newton–Schulz 5", "#CC79A7", "v", "--"),
    ("inv_sqrt", "autograd"): ("$A^{-1/2}$ autograd", "#E69F00", "s", "--"),
    ("inv_sqrt", "taylor"): ("$A^{-1/2}$ spectralgrad svd-taylor", "#009E73", "s", "-"),
    ("inv_sqrt", "exact"): ("$A^{-1/2}$ spectralgrad exact", "#D55E00", "s", "-"),
}


def require() -> None:
    """Raise an error that says what to install if plotting is not possible."""
    if find_spec("matplotlib") is None:
        raise SpectralError("plotting needs matplotlib: pip install -e '.[plots]'")


def cost(path: str | Path, run: Run, dtype: str = "float32", spectrum: str = "wishart") -> None:
    """Plot microseconds per matrix against d (left) and B (right); other implementations are dashed.

    Args:
        path: file to write; its extension selects the format (png, svg, pdf).
        run: what was measured.
        dtype: of the cases to plot.
        spectrum: of the cases to plot.

    Raises:
        SpectralError: matplotlib is not installed.
    """
    require()
    from matplotlib.figure import Figure

    sizes = _table_sizes()
    square = [o for o in run.outcomes if (o.case.precision, o.case.spectrum, o.case.columns) == (dtype, spectrum, 0)]
    figure = Figure(figsize=(11, 4.8), dpi=150, facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _lines(left, [(o.case.size, o) for o in square if sizes.get(o.case.size) == o.case.batch])
    _lines(right, [(o.case.batch, o) for o in square if o.case.size == SWEEP_SIZE])
    dress(left, "size d (batch as in the table)")
    dress(right, f"batch B (d = {SWEEP_SIZE})")
    left.set_ylabel("microseconds per matrix")
    figure.suptitle(f"{dtype}, {spectrum}: {run.headline}", fontsize=9, x=0.01, ha="left")
    handles, labels = max((axes.get_legend_handles_labels() for axes in (left, right)), key=lambda pair: len(pair[1]))
    if handles:
        figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    figure.savefig(Path(path))


def _table_sizes() -> dict[int, int]:
    """Size → batch in the first group of goals."""
    first = table()[0].title
    return {goal.case.size: goal.case.batch for goal in table() if goal.title == first}


def _lines(axes: Any, points: list[tuple[int, Outcome]]) -> None:
    for (contest, name), (label, color, marker, line) in _STYLES.items():
        held = sorted(((x, o) for x, o in points if o.contest == contest), key=lambda point: point[0])
        timed = [(x, o[name].timing, o.case.batch) for x, o in held if name in o]
        known = [(x, timing.seconds / batch * 1e6) for x, timing, batch in timed if timing is not None]
        if known:
            axes.plot(*zip(*known, strict=True), color=color, marker=marker, linestyle=line, label=label, markersize=5)


def dress(axes: Any, label: str) -> None:
    """Logarithmic axes with a light grid."""
    from matplotlib.ticker import NullLocator, ScalarFormatter

    axes.set(yscale="log", xlabel=label)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
