"""Pictures of the accuracy tables: the error against the gap, and against the width of one cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

import spectralgrad as sg
from spectralgrad.testing import paired_matrix, with_spectrum

from ..drawing import COLORS, canvas, dress
from ..inputs import gaussian, sym
from ..registry import computes, draws
from ..value_conditions import Value
from .compared import Root, composed, error, root_by, torch_eigh
from .refined import true_gradient

DRAWS = 9
TYPES = {"float64": torch.float64, "float32": torch.float32}
RULES: Mapping[str, tuple[Root, str, str]] = {
    "torch autograd": (composed(torch_eigh), "black", "o-"),
    "Newton–Schulz, 5 steps": (root_by(sg.NewtonSchulz()), "gray", "v:"),
    "clip 100": (root_by(sg.Clip()), "purple", "D--"),
    "Taylor-9": (root_by(sg.Taylor()), "orange", "s-"),
    "Taylor-100": (root_by(sg.Taylor(degree=100)), "orange", "s:"),
    "power iteration, K = 19": (root_by(sg.SVDPI(eps=0.0, energy=1.0)), "green", "X:"),
    "trunc 1e10": (root_by(sg.Trunc()), "green", "^--"),
    "Lorentzian": (root_by(sg.Lorentzian()), "sky", "d--"),
    "masked": (root_by(sg.Masked()), "blue", "<:"),
    "Padé with a floor": (root_by(sg.Pade()), "blue", "P-"),
    "exact": (root_by(sg.Exact()), "red", "*-"),
}
RELEASED: Mapping[str, tuple[Root, str, str]] = {
    "torch autograd": (composed(torch_eigh), "black", "o-"),
    "clip 100": (root_by(sg.Clip()), "purple", "D--"),
    "Taylor-9": (root_by(sg.Taylor()), "orange", "s-"),
    "Taylor-9, released signs": (root_by(sg.Taylor(faithful=True)), "orange", "s:"),
    "Taylor-100, released signs": (root_by(sg.Taylor(degree=100, faithful=True)), "sky", "d:"),
    "trunc 1e10, released": (root_by(sg.Trunc(faithful=True)), "green", "^:"),
    "Padé, released": (root_by(sg.Pade(faithful=True)), "blue", "P:"),
    "exact": (root_by(sg.Exact()), "red", "*-"),
}


def median_error(root: Root, cases: list[tuple[Any, Any, Any]]) -> float:
    """The median error over draws, NaN if it is not finite in most of them; rounded for the record."""
    found = float(np.median([math.inf if math.isnan(e := error(root, *case)) else e for case in cases]))
    return float(f"{found:.6g}") if math.isfinite(found) else math.nan


@computes("gradients/figure-1")
def error_against_gap() -> Mapping[str, Value]:
    """Median errors for A^(-1/2), 8×8, condition 1e2, over nine draws; the last gap, 0, is an exact tie."""
    values: dict[str, Any] = {}
    for name, dtype in TYPES.items():
        last = 16 if dtype == torch.float64 else 8
        gaps = [0.5, *(10.0**-k for k in range(1, last + 1)), 0.0]
        errors: dict[str, list[float]] = {rule: [] for rule in RULES}
        for gap in gaps:
            cases = []
            for seed in range(DRAWS):
                A = paired_matrix(8, 1e2, gap, dtype=dtype, seed=seed)
                G = sym(gaussian(8, 8, seed=seed + 100, dtype=dtype))
                cases.append((A, G, true_gradient(A, "inv_sqrt", G)))
            for rule, (root, _, _) in RULES.items():
                errors[rule].append(median_error(root, cases))
        values |= {f"{name}_gaps": gaps, **{f"{name}, {rule}": found for rule, found in errors.items()}}
        values[f"{name}_exact_worst"] = max(errors["exact"])
        values[f"{name}_taylor_smallest"] = min(errors["Taylor-9"][2:])
        values[f"{name}_autograd_nan_at_tie"] = math.isnan(errors["torch autograd"][-1])
    return values


@computes("gradients/figure-2")
def error_against_spread() -> Mapping[str, Value]:
    """Errors for A^(-1/2) with 16 eigenvalues evenly spaced from 1 − spread to 1; median over nine draws."""
    values: dict[str, Any] = {}
    for name, dtype in TYPES.items():
        spreads = [10.0**-k for k in range(1, 16 if dtype == torch.float64 else 8)]
        errors: dict[str, list[float]] = {rule: [] for rule in RELEASED}
        for spread in spreads:
            cases = []
            for seed in range(DRAWS):
                A = with_spectrum(1 - spread * np.linspace(0, 1, 16), dtype=dtype, seed=seed)
                G = sym(gaussian(16, 16, seed=seed + 100, dtype=dtype))
                cases.append((A, G, true_gradient(A, "inv_sqrt", G)))
            for rule, (root, _, _) in RELEASED.items():
                errors[rule].append(median_error(root, cases))
        values |= {f"{name}_spreads": spreads, **{f"{name}, {rule}": found for rule, found in errors.items()}}
        values[f"{name}_exact_worst"] = max(errors["exact"])
        values[f"{name}_taylor_smallest"] = min(errors["Taylor-9"])
    return values


@draws("gradients/figure-1")
def draw_gaps(values: Mapping[str, Any]) -> Any:
    """Two panels, float64 and float32: one line per rule."""
    figure, panels = canvas(1, 2, width=5.6, height=4.8, sharey=True)
    for axes, name in zip(panels, TYPES, strict=True):
        gaps = values[f"{name}_gaps"]
        tie = gaps[-2] / 40
        _lines(axes, values, name, RULES, [*gaps[:-1], tie], nan=100.0, end=len(gaps) - 1)
        axes.axvline(gaps[-2] / 6, color="#BBBBBB", linewidth=1)
        ticks = [k for k in range(0, -17, -4) if 10.0**k >= gaps[-2]]
        axes.set_xticks([*(10.0**k for k in ticks), tie], [*(f"$10^{{{k}}}$" if k else "1" for k in ticks), "tie"])
        dress(axes, legend=False, xlabel="relative gap between paired eigenvalues", xlim=(1.5, tie / 4))
        axes.set_title(f"gradient of $A^{{-1/2}}$, 8×8, condition $10^2$, {name}", fontsize=10, loc="left")
    _errors_axis(figure, panels[0], 0, nan=100.0)
    return figure


@draws("gradients/figure-2")
def draw_spreads(values: Mapping[str, Any]) -> Any:
    """Two panels, float64 and float32: one line per rule."""
    figure, panels = canvas(1, 2, width=5.6, height=4.8, sharey=True)
    for axes, name in zip(panels, TYPES, strict=True):
        spreads = values[f"{name}_spreads"]
        _lines(axes, values, name, RELEASED, spreads, nan=1e18, end=len(spreads))
        dress(axes, legend=False, xlabel="width of the cluster of all 16 eigenvalues")
        axes.set_xlim(0.3, spreads[-1] / 3)
        axes.set_title(f"gradient of $A^{{-1/2}}$, one tight cluster, {name}", fontsize=10, loc="left")
    _errors_axis(figure, panels[0], 16, nan=1e18)
    return figure


def _lines(
    axes: Any, values: Mapping[str, Any], name: str, rules: Mapping[str, Any], places: list[float], nan: float, end: int
) -> None:
    """One line per rule, interrupted before place ``end``; gradients that are not finite are crosses at ``nan``."""
    axes.set(xscale="log", yscale="log")
    for rule, (_, color, style) in rules.items():
        errors = np.array([float(e) for e in values[f"{name}, {rule}"]])
        look = {"color": COLORS[color], "markersize": 10 if style[0] == "*" else 5, "linewidth": 1.5}
        axes.plot(places[:end], errors[:end], style, label=rule, **look)
        axes.plot(places[end:], errors[end:], style, **look)
        lost = np.isnan(errors)
        axes.plot(np.array(places)[lost], np.full(lost.sum(), nan), "x", color=COLORS[color], markersize=8)
    axes.axhline(nan / 8, color="#BBBBBB", linewidth=1)
    axes.minorticks_off()


def _errors_axis(figure: Any, axes: Any, highest: int, nan: float) -> None:
    """The common axis of errors, with the place of NaN, and one legend beside the panels."""
    ticks = range(-16, highest + 1, 4)
    axes.set(ylabel="relative error of the gradient (× not finite)", ylim=(1e-17, nan * 8))
    axes.set_yticks([*(10.0**k for k in ticks), nan], [*(f"$10^{{{k}}}$" if k else "1" for k in ticks), "NaN"])
    axes.minorticks_off()
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=9)
