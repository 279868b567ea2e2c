"""The optimal learning rate, OLR (Eq. 18–21, 27–33)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from spectralgrad.optim import nearest_orthogonal, optimal_rate
from spectralgrad.testing import random_orthogonal

from ..inputs import gaussian
from ..registry import computes
from ..value_conditions import Value
from .matrices import defect, error, eye


@computes("eccv/O15")
def against_the_minimiser() -> Mapping[str, Value]:
    """Eq. 20 beside the minimiser of Eq. 18, the quartic ‖(W − ηG)(W − ηG)ᵀ − I‖²: rates, and how often it is worse."""
    rates, exact, worse, excess = [], [], [], []
    for seed in range(300):
        W, G = gaussian(16, 16, seed=seed) / 4, gaussian(16, 16, seed=seed + 1000)
        rates.append(float(optimal_rate(W, G)))
        exact.append(float(optimal_rate(W, G, objective="exact")))
        worse.append(defect(W, rates[-1], G) > defect(W))
        excess.append(defect(W, exact[-1], G) - min(defect(W, rates[-1], G), defect(W)))
    Q, G = random_orthogonal(16), gaussian(16, 16)
    return {
        "rate": float(np.median(rates)),
        "exact_rate": float(np.median(exact)),
        "worse": float(np.mean(worse)),
        "exact_excess": max(excess),
        "orthogonal_exact_rate": float(optimal_rate(Q, G, objective="exact")),
        "orthogonal_growth": defect(Q, float(optimal_rate(Q, G)), G) / defect(Q),
        **first_convolution(),
    }


def first_weight(seed: int) -> Tensor:
    """The 64×27 weight of a first convolution, He initialisation."""
    return math.sqrt(2 / (64 * 9)) * gaussian(64, 27, seed=seed)


def first_convolution() -> dict[str, float]:
    """Eq. 20 for first convolutions, 64×27, as ResNets initialise them, and for a tenth of these weights.

    They lie below orthogonal and would have to grow. Eq. 20 shrinks them, whatever its sign.
    """
    worse, shrunk, small_worse = [], [], []
    for seed in range(400):
        W = first_weight(seed)
        G = 1e-2 * gaussian(64, 27, seed=seed + 1000)
        rate = float(optimal_rate(W, G))
        worse.append(defect(W, rate, G) > defect(W))
        shrunk.append(float((W - rate * G).norm() / W.norm()))
        small_worse.append(defect(W / 10, rate / 10, G) > defect(W / 10))
    return {
        "first_worse": float(np.mean(worse)),
        "first_length": max(shrunk),
        "small_first_worse": float(np.mean(small_worse)),
    }


@computes("eccv/O16")
def vector_form() -> Mapping[str, Value]:
    """Eq. 20 beside a Newton step from η = 0 on ‖w − ηl‖⁴, its scaling, and its effect for G = cW."""
    W, G = gaussian(5, 7), gaussian(5, 7, seed=1)
    step = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad((W - step * G).square().sum().square(), step, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, step)
    rate, best = float(optimal_rate(W, G)), float((G * W).sum() / G.square().sum())
    square = gaussian(4, 4)
    scales = (0.1, 1.0, 30.0)
    return {
        "objectives": float((square.square().sum() - eye(4)).square().sum()) / defect(square) ** 2,
        "newton_error": abs(rate * curvature.item() / -slope.item() - 1),
        "twice_the_weight": float(optimal_rate(W, 2 * W)),
        "shrinks_to": [float((W - optimal_rate(W, c * W) * c * W).norm() / W.norm()) for c in scales],
        "shrinks_error": max(error(W - optimal_rate(W, c * W) * c * W, 2 / 3 * W) for c in scales),
        "scaling_error": max(abs(float(optimal_rate(c * W, G)) / (c * rate) - 1) for c in scales),
        "length_beside_minimum": float((W - rate * G).norm() / (W - best * G).norm()),
    }


@computes("eccv/O17")
def negative_rates() -> Mapping[str, Value]:
    """How often Eq. 20 is not positive, for 400 pairs of Gaussian matrices."""
    pairs = ((gaussian(16, 16, seed=s), gaussian(16, 16, seed=s + 1000)) for s in range(400))
    return {"negative": float(np.mean([float(optimal_rate(W, G)) <= 0 for W, G in pairs]))}


@computes("eccv/O18")
def quotient_of_vectors() -> Mapping[str, Value]:
    """Eq. 32 entry by entry: i is the flattened identity, so numerator and denominator are vectors."""
    w, g, i = (M.flatten() for M in (gaussian(4, 4) / 2, gaussian(4, 4, seed=1), eye(4)))
    quotient = ((w @ w) * (g @ w) - (g @ w) * i) / ((w @ w) * (g @ g) + 2 * (g @ w) ** 2 - (g @ g) * i)
    values = quotient.unique()
    return {"entries": quotient.numel(), "distinct": values.numel(), "values": values.tolist()}


@computes("eccv/O19")
def one_factor_orthogonal() -> Mapping[str, Value]:
    """η*(W, cG) = η*(W, G)/c for an orthogonal W, and η* for orthogonal gradients of first convolutions."""
    W, G = random_orthogonal(8), gaussian(8, 8)
    rate = float(optimal_rate(W, G))
    treated = [
        abs(float(optimal_rate(first_weight(seed), nearest_orthogonal(gaussian(64, 27, seed=seed + 1000)))))
        for seed in range(300)
    ]
    return {
        "rate": rate,
        "scaling_error": max(abs(float(optimal_rate(W, c * G)) * c / rate - 1) for c in (1e-6, 1e3)),
        "rate_of_a_small_gradient": abs(float(optimal_rate(W, 1e-6 * G))),
        "orthogonal_gradient": float(np.median(treated)),
        "orthogonal_gradient_largest": max(treated),
    }
