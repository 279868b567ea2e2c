"""Plots the gradient error against the eigenvalue gap. matplotlib and mpmath are imported when a plot is made."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import SpectralError
from ..testing import Reference, paired_matrix, paired_spectrum
from .conformance_cases import Case, Draw, draw_polar
from .other_implementations import own_root, torch_autograd, torch_polar

SIZE, CONDITION, DRAWS = 8, 1e2, 5
GAPS = (0.5, *(10.0**-k for k in range(1, 17)), 0.0)  # relative distance within each pair; 0 is a tie
_TIE, _NAN = 10**-18.3, 30.0  # positions on the axes for a tie and for a gradient that is not finite

# Method → colour (Okabe and Ito's palette for colour-blind readers), marker, line. None is plain autograd.
_STYLES: dict[str | None, tuple[str, str, str]] = {
    None: ("#000000", "o", "-"),
    "newton-schulz": ("#999999", "v", ":"),
    "svd-clip": ("#CC79A7", "D", "--"),
    "svd-taylor": ("#E69F00", "s", "-"),
    "svd-trunc": ("#009E73", "^", "--"),
    "svd-pade": ("#56B4E9", "P", "-"),
    "exact": ("#D55E00", "*", "-"),
}
_POLAR_STYLES: dict[str | None, tuple[str, str, str]] = {
    None: ("#000000", "o", "-"),
    "muon": ("#999999", "v", ":"),
    "polar-express": ("#E69F00", "s", "-"),
    "polar-express:steps=8": ("#56B4E9", "P", "-"),
    "exact": ("#D55E00", "*", "-"),
}


def gradient_error(path: str | Path, function: str = "inv_sqrt", draws: int = DRAWS) -> None:
    """Plot the gradient error of a matrix root or of the polar factor against the relative gap, one line per method.

    The matrices have size 8, float64 entries, condition number 1e2 and eigenvalues (for the polar factor singular
    values) in pairs; the reference has 50 digits. Each point is the median over random draws of vectors and cotangent.
    The last position on the axis is an exact tie. A gradient that is not finite is shown as a cross at the top.

    Args:
        path: file to write; its extension determines the format (png, svg or pdf).
        function: ``"inv_sqrt"``, ``"sqrt"`` or ``"polar"``.
        draws: number of random draws.

    Raises:
        SpectralError: matplotlib or mpmath is not installed.
    """
    require()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.6), dpi=150, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    for name, errors in measure(function, draws).items():
        _line(axes, name, errors, _styles(function))
    _dress(axes, function)
    figure.savefig(Path(path))


def require() -> None:
    """Raise :class:`SpectralError` if a package that the plot needs is not installed."""
    missing = [name for name in ("matplotlib", "mpmath") if find_spec(name) is None]
    if missing:
        raise SpectralError(f"plotting requires {' and '.join(missing)}: pip install -e '.[plots]'")


def measure(function: str, draws: int = DRAWS) -> dict[str | None, list[float]]:
    """Method → median relative error of its gradient at each of ``GAPS``; NaN if the median is not finite."""
    plain = torch_polar()["torch"] if function == "polar" else torch_autograd(function)
    roots = {name: own_root(function, name) if name else plain for name in _styles(function)}
    errors: dict[str | None, list[float]] = {name: [] for name in roots}
    for gap in GAPS:
        sample = [_draw(function, gap, seed) for seed in range(draws)]
        for name, root in roots.items():
            found = [draw.errors(root)[0] for draw in sample]
            median = float(np.median([np.inf if np.isnan(error) else error for error in found]))
            errors[name].append(median if np.isfinite(median) else float("nan"))
    return errors


def _styles(function: str) -> dict[str | None, tuple[str, str, str]]:
    return _POLAR_STYLES if function == "polar" else _STYLES


def _draw(function: str, gap: float, seed: int) -> Draw:
    if function == "polar":
        return draw_polar(Case("", tuple(paired_spectrum(SIZE, CONDITION, gap)), torch.float64), seed)
    A = paired_matrix(SIZE, CONDITION, gap, seed=seed)
    G = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    G, reference = (G + G.mT) / 2, Reference(A)
    return Draw(A, G, reference.value(function), reference.gradient(function, G), symmetric=True)


def _line(axes: Any, name: str | None, errors: list[float], styles: dict[str | None, tuple[str, str, str]]) -> None:
    color, marker, line = styles[name]
    aside = 10 ** (0.42 * (len(styles) // 2 - list(styles).index(name)))  # several errors are equal at a tie
    x, y = np.array([gap or _TIE * aside for gap in GAPS]), np.array(errors)
    size = {"*": 11, "D": 9, "^": 8}.get(marker, 6)
    look = {"color": color, "marker": marker, "markersize": size, "markeredgewidth": 1.5, "zorder": 3}
    if marker in "D^":  # hollow, so that the markers beneath remain visible
        look["markerfacecolor"] = "none"
    label = {
        None: "torch autograd",
        "newton-schulz": "newton-schulz, 5 steps",
        "polar-express": "polar-express, 5 steps",
        "polar-express:steps=8": "polar-express, 8 steps",
    }.get(name, name)
    axes.plot(x[:-1], y[:-1], linestyle=line, linewidth=1.8, label=label, **look)
    axes.plot(x[-1:], y[-1:], linestyle="", **look)
    lost = np.isnan(y)
    axes.plot(x[lost], np.full(lost.sum(), _NAN), "x", color=color, markersize=10, markeredgewidth=2.5, zorder=4)


def _dress(axes: Any, function: str) -> None:
    what = {"sqrt": "$A^{1/2}$", "inv_sqrt": "$A^{-1/2}$", "polar": "the polar factor"}[function]
    values = "singular values" if function == "polar" else "eigenvalues"
    axes.set(xscale="log", yscale="log", xlim=(1.5, 10**-20.1), ylim=(2e-17, 1e2))
    exponents = range(0, -17, -4)
    axes.set_xticks([10.0**k for k in exponents] + [_TIE])
    axes.set_xticklabels([f"$10^{{{k}}}$" if k else "1" for k in exponents] + ["tie"])
    axes.set_yticks([10.0**k for k in range(-16, 1, 4)] + [_NAN])
    axes.set_yticklabels([f"$10^{{{k}}}$" if k else "1" for k in range(-16, 1, 4)] + ["NaN"])
    axes.minorticks_off()
    axes.axvline(10**-16.5, color="#BBBBBB", linewidth=1)
    axes.axhline(8, color="#BBBBBB", linewidth=1)
    axes.grid(color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(f"relative gap between neighbouring {values}")
    axes.set_ylabel("relative error of the gradient")
    axes.set_title(f"Gradient of {what}, float64, {SIZE}×{SIZE}, condition number $10^2$", fontsize=11, loc="left")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, labelspacing=0.9)
