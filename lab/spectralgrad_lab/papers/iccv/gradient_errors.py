"""How close the gradients of the SVD meta-layers are to the true one (sections 3.3 and 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

import spectralgrad as sg
from spectralgrad.testing import relative_error

from ..drawing import COLORS, canvas, dress, rounded
from ..inputs import gradient, paired
from ..registry import computes, draws
from ..value_conditions import Value

GAPS = tuple(10.0**-k for k in range(1, 16))
CONDITION = 1e2
METHODS: Mapping[str, tuple[str | sg.Method, str, str]] = {
    "MPN-COV (SVD)": ("svd", "black", "o"),
    "SVD-Padé, published": (sg.Pade(faithful=True), "purple", "P"),
    "SVD-Trunc, 1e10": (sg.Trunc(), "green", "^"),
    "SVD-Taylor, degree 100": (sg.Taylor(degree=100), "orange", "s"),
    "SVD-Newton, 10 iterations": (sg.SVDNewton(steps=10), "sky", "D"),
    "iSQRT-COV, 5 iterations": (sg.NewtonSchulz(steps=5), "gray", "v"),
    "exact": ("exact", "red", "*"),
}


def error(method: str | sg.Method, gap: float) -> float:
    """Relative error of the root's gradient on an 8×8 matrix with paired eigenvalues; infinite if not finite."""
    A, reference, G = paired(CONDITION, gap)
    found = gradient(lambda M: sg.matrix_sqrt(M, method=method), A, G)
    return relative_error(found, reference.gradient("sqrt", G)) if torch.isfinite(found).all() else float("inf")


@computes("iccv/gradient-errors")
def errors() -> Mapping[str, Value]:
    """Errors of all gradients against the relative gap within pairs of eigenvalues, reference of 50 digits."""
    lines = {name: [error(method, gap) for gap in GAPS] for name, (method, *_) in METHODS.items()}
    return {
        "gaps": list(GAPS),
        "lines": [rounded(line) for line in lines.values()],
        "pade": lines["SVD-Padé, published"][:8],
        "taylor": lines["SVD-Taylor, degree 100"][3:],
        "trunc": lines["SVD-Trunc, 1e10"][11:],
        "newton": lines["SVD-Newton, 10 iterations"],
        "plain": lines["MPN-COV (SVD)"][:8],
        "exact": lines["exact"],
    }


@draws("iccv/gradient-errors")
def draw_errors(values: Mapping[str, Any]) -> Any:
    """One line per method."""
    figure, axes = canvas(width=8.2, height=4.2)
    for (name, (_, color, marker)), line in zip(METHODS.items(), values["lines"], strict=True):
        axes.plot(values["gaps"], line, color=COLORS[color], marker=marker, markersize=4, linewidth=1.2, label=name)
    axes.invert_xaxis()
    dress(axes, xscale="log", yscale="log", xlabel="relative gap within pairs of eigenvalues", legend="outside")
    axes.set(ylabel="relative error of the gradient of √A")
    axes.set_title("8×8 matrices, condition number 100, double precision", fontsize=9, loc="left")
    return figure
