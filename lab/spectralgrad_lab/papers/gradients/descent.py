"""What the choice of gradient is worth where ties are the rule: gradient descent that starts at the identity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import with_spectrum

from ..drawing import COLORS, canvas, dress, rounded
from ..inputs import uniform
from ..registry import computes, draws
from ..value_conditions import Value

STEPS, RATE, SIZE, TARGETS = 400, 0.5, 8, 3
METHODS = {
    "exact": ("exact", "blue"),
    "newton_schulz": ("newton-schulz", "sky"),
    "taylor": ("svd-taylor", "green"),
    "pade": ("svd-pade", "purple"),
    "clip": ("svd-clip", "gray"),
    "taylor_released": ("svd-taylor:faithful=True", "red"),
    "power_iteration": ("svd-pi", "orange"),
}


def autograd_root(A: Tensor) -> Tensor:
    """A^(1/2) through torch.linalg.eigh, differentiated by autograd."""
    w, V = torch.linalg.eigh(A)
    return (V * w.sqrt()) @ V.mT


def descend(root: Callable[[Tensor], Tensor], target: Tensor) -> list[float]:
    """The losses ‖A^(1/2) − T^(1/2)‖² of gradient descent from A = I; NaN and no more once a gradient is not finite."""
    wanted, A, losses = sg.matrix_sqrt(target), torch.eye(SIZE, dtype=torch.float64), []
    for _ in range(STEPS):
        A = A.detach().requires_grad_()
        loss = (root(A) - wanted).square().sum()
        losses.append(float(loss.detach()))
        (gradient,) = torch.autograd.grad(loss, A)
        if not bool(gradient.isfinite().all()):
            return [*losses, math.nan]
        A = A - RATE * (gradient + gradient.mT) / 2
    return losses


@computes("gradients/descent")
def descent_from_the_identity() -> Mapping[str, Value]:
    """Descend on three random targets with every method; a negative eigenvalue on the way is set to zero."""
    spectra = [uniform(SIZE, low=0.2, high=2.2, seed=seed).sort().values for seed in range(TARGETS)]
    targets = [with_spectrum(spectrum) for spectrum in spectra]
    curves = {name: [descend(_root(method), T) for T in targets] for name, (method, _) in METHODS.items()}
    result: dict[str, Value] = {f"{name}_final": [c[-1] for c in of] for name, of in curves.items()}
    result["start"] = [curve[0] for curve in curves["exact"]]
    result["gains"] = [curve[-1] / curve[0] for curve in curves["taylor_released"]]
    result["autograd_nan"] = all(math.isnan(descend(autograd_root, T)[-1]) for T in targets)
    result |= {f"{name}_curve": rounded(of[0][::4]) for name, of in curves.items()}
    return result


def _root(method: str) -> Callable[[Tensor], Tensor]:
    return lambda A: sg.matrix_sqrt(A, method=method, clamp=True)


@draws("gradients/descent")
def descent_curves(values: Mapping[str, Any]) -> Any:
    """The loss against the step, for the first target."""
    figure, axes = canvas()
    for name, (method, color) in METHODS.items():
        curve = values[f"{name}_curve"]
        axes.plot(range(0, 4 * len(curve), 4), curve, color=COLORS[color], linewidth=1.4, label=method)
    dress(axes, xlabel="step", ylabel="‖A^(1/2) − T^(1/2)‖²", yscale="log", legend="outside")
    return figure
