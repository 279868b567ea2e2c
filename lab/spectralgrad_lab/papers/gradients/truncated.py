"""Whitening by all eigenvectors or by one, as the released baseline does: the gradient's size against λ1 − λ2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import random_orthogonal

from ..drawing import COLORS, canvas, dress, rounded
from ..inputs import gaussian, gradient, tensor
from ..registry import computes, draws
from ..value_conditions import Value

GAPS = [10.0**-k for k in range(1, 11)]
EPS, POSITIONS = 1e-4, 512
REST = (0.5, 0.2)  # the other two eigenvalues; λ1 = 1


def leading(method: str) -> Callable[[Tensor], Tensor]:
    """λ1^(-1/2) v1 v1ᵀ, differentiated through the eigenpair by a method."""

    def root(M: Tensor) -> Tensor:
        w, V = sg.eigh(M, method=method)
        return V[:, -1:] @ V[:, -1:].mT / w[-1].sqrt()

    return root


def full(method: str) -> Callable[[Tensor], Tensor]:
    """The inverse root by a method."""
    return lambda M: sg.matrix_inv_sqrt(M, method=method)


ROOTS: Mapping[str, tuple[Callable[[Tensor], Tensor], str, str]] = {
    "released": (full(f"svd:stop={EPS}"), "black", "o-"),
    "one_taylor": (leading("svd-taylor"), "orange", "s-"),
    "one_power_iteration": (leading("svd-pi"), "green", "X-"),
    "svd": (full("svd"), "blue", "^--"),
    "taylor": (full("svd-taylor"), "orange", "s:"),
    "power_iteration": (full(f"svd-pi:eps={EPS}"), "green", "X:"),
    "exact": (full("exact"), "red", "*--"),
}
LABELS = {
    "released": "one vector, plain SVD (released)",
    "one_taylor": "one vector, SVD-Taylor",
    "one_power_iteration": "one vector, SVD-PI",
    "svd": "all, plain SVD",
    "taylor": "all, SVD-Taylor",
    "power_iteration": "all but the last, SVD-PI",
    "exact": "all, exact",
}


@computes("gradients/figure-3")
def sizes() -> Mapping[str, Value]:
    """Norms of the gradient in the features, four channels at 512 positions, one cotangent for all gaps."""
    G, Z = gaussian(4, POSITIONS, seed=1), gaussian(POSITIONS, 4, seed=2)
    Q = torch.linalg.qr(Z - Z.mean(0)).Q.mT * POSITIONS**0.5  # white and centered
    turn = random_orthogonal(4, seed=3)
    found: dict[str, list[float]] = {name: [] for name in ROOTS}
    for gap in GAPS:
        X = turn @ (tensor(*REST, 1 - gap, 1.0).sqrt().unsqueeze(-1) * Q)
        for name, (root, _, _) in ROOTS.items():
            found[name].append(float(gradient(lambda X, root=root: root(_covariance(X)) @ X, X, G).norm()))  # type: ignore[misc]
    return {"gaps": GAPS, **{name: rounded(values) for name, values in found.items()}}


def _covariance(X: Tensor) -> Tensor:
    centered = X - X.mean(1, keepdim=True)
    return centered @ centered.mT / X.shape[1] + EPS * torch.eye(len(X), dtype=X.dtype)


@draws("gradients/figure-3")
def draw_sizes(values: Mapping[str, Any]) -> Any:
    """One line per root and rule."""
    figure, axes = canvas(width=6.4, height=4.2)
    for name, (_, color, style) in ROOTS.items():
        axes.plot(values["gaps"], values[name], style, color=COLORS[color], markersize=5, label=LABELS[name])
    axes.set(xscale="log", yscale="log", xlim=(0.2, GAPS[-1] / 2))
    dress(axes, xlabel="λ₁ − λ₂", ylabel="norm of the gradient in the features", legend="outside")
    return figure
