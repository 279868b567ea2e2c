"""Proposition 1: bounds of the optimal learning rate where weight and gradient are orthogonal (Eq. 34–42)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

import numpy as np
import torch
from torch import Tensor

from spectralgrad.optim import optimal_rate
from spectralgrad.testing import random_orthogonal

from ..inputs import gaussian
from ..registry import computes
from ..value_conditions import Value
from .matrices import defect, eye

SIZES = (4, 16, 64)


def rotations(n: int, angle: float) -> Tensor:
    """An orthogonal n×n matrix of rotations in planes: ⟨I, G⟩ = n cos(angle)."""
    c, s = math.cos(angle), math.sin(angle)
    turn = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
    return torch.block_diag(*[turn] * (n // 2))


@cache
def haar_pairs(n: int = 8, count: int = 600) -> tuple[list[float], list[float]]:
    """lᵀw and η* for pairs of random orthogonal matrices."""
    pairs = [(random_orthogonal(n, seed=s), random_orthogonal(n, seed=s + 10_000)) for s in range(count)]
    return [float((W * G).sum()) for W, G in pairs], [float(optimal_rate(W, G)) for W, G in pairs]


@computes("eccv/O20")
def lower_bound() -> Mapping[str, Value]:
    """Counterexamples to lᵀw ≥ 1 (Eq. 39) and η* ≥ 1/(N² + 2) for N = 8, and how often random pairs are ones."""
    n = 8
    products, rates = haar_pairs(n)
    return {
        "quarter_turns": float(optimal_rate(eye(n), rotations(n, math.pi / 2))),
        "opposite": float(optimal_rate(eye(n), -eye(n))),
        "mean": float(np.mean(products)),
        "variance": float(np.var(products)),
        "at_least_one": float(np.mean(np.array(products) >= 1)),
        "violated": float(np.mean(np.array(rates) < 1 / (n**2 + 2))),
    }


@computes("eccv/O21")
def upper_bound() -> Mapping[str, Value]:
    """η* = Nt/(N² + 2t²) with t = lᵀw: its maximum over t, the minimum for t ≥ 1, and pairs that reach the maximum."""
    largest, place, smallest, reached = [], [], [], []
    for n in SIZES:
        t = np.linspace(0, n, 200_001)
        rates = n * t / (n**2 + 2 * t**2)
        largest.append(float(rates.max()))
        place.append(float(t[rates.argmax()]) / n)
        smallest.append(float(rates[t >= 1].min()))
        reached.append(float(optimal_rate(eye(n), rotations(n, math.pi / 4))))
    products, found = (np.array(x) for x in haar_pairs())
    return {
        "formula_error": float(np.abs(8 * products / (64 + 2 * products**2) - found).max()),
        "largest": largest,
        "place": place,
        "smallest": smallest,
        "reached": reached,
        "any_pair": share_of_the_bound(),
    }


def share_of_the_bound() -> float:
    """The largest |η*| · 2√2 ‖G‖/‖W‖ over pairs that need not be orthogonal."""
    shares = []
    for seed in range(200):
        W, G = gaussian(5, 7, seed=seed), gaussian(5, 7, seed=seed + 1000)
        G = G + 2 * W if seed % 2 else G
        shares.append(abs(float(optimal_rate(W, G))) * 2 * math.sqrt(2) * float(G.norm() / W.norm()))
    return max(shares)


@computes("eccv/O22")
def bound_for_64_rows() -> Mapping[str, Value]:
    """1/(N² + 2) for N = 64, and η* of a pair with lᵀw = 1, where the bound is meant to be reached."""
    n = 64
    pair = optimal_rate(eye(n), rotations(n, math.acos(1 / n)))
    return {"bound": 1 / (n**2 + 2), "rate": float(pair), "above": float(pair) * (n**2 + 2)}


@computes("eccv/O23")
def moved_apart() -> Mapping[str, Value]:
    """The distance from orthogonal (Eq. 18) before and after a step η* between two orthogonal matrices."""
    before, after, beside_rate = [], [], []
    for seed in range(20):
        W, G = random_orthogonal(8, seed=seed), random_orthogonal(8, seed=seed + 100)
        rate = float(optimal_rate(W, G))
        before.append(defect(W))
        after.append(defect(W, rate, G))
        beside_rate.append(after[-1] / abs(rate))
    return {"before": max(before), "after": float(np.median(after)), "after_over_rate": min(beside_rate)}
