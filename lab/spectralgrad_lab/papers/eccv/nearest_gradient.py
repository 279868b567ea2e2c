"""The nearest orthogonal gradient, NOG (Eq. 14–17)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.optim import nearest_orthogonal

from ..inputs import gaussian, tensor
from ..registry import computes
from ..value_conditions import Value
from .matrices import SHAPES, condition, defect, error, eye


def eq16(G: Tensor) -> Tensor:
    """R = G(GᵀG)^(-1/2)."""
    return G @ torch.linalg.inv(sg.matrix_sqrt(G.T @ G))


@computes("eccv/O10")
def closed_form() -> Mapping[str, Value]:
    """Whether Eq. 16 exists and satisfies RRᵀ = I, for square, wide and tall gradients, and what the library does."""
    square, wide, tall, first = (gaussian(*shape) for shape in SHAPES)
    U, _, Vh = torch.linalg.svd(square)
    return {
        "square_defect": defect(eq16(square)),
        "square_error": error(eq16(square), U @ Vh),
        "wide_rank": int(torch.linalg.matrix_rank(wide.T @ wide)),
        "tall_defect": defect(eq16(tall)),
        "first_defect": defect(nearest_orthogonal(first)),
        "tall_error": error(nearest_orthogonal(tall), eq16(tall)),
        "wide_error": error(nearest_orthogonal(wide), sg.matrix_inv_sqrt(wide @ wide.T) @ wide),
    }


def descended_distance(G: Tensor, steps: int = 60) -> float:
    """min ‖G − polar(M)‖_F over M, by L-BFGS from a random start."""
    M = gaussian(*G.shape, seed=999).requires_grad_()
    optimizer = torch.optim.LBFGS([M], max_iter=steps, line_search_fn="strong_wolfe")

    def distance() -> Tensor:
        optimizer.zero_grad()
        value = (G - sg.polar(M)).norm()
        value.backward()
        return value

    optimizer.step(distance)  # type: ignore[arg-type]
    return float((G - sg.polar(M.detach())).norm())


@computes("eccv/O11")
def nearest() -> Mapping[str, Value]:
    """The distance of UVᵀ from G beside √Σ(σ − 1)², and beside competitors: random, nearby, and found by descent."""
    formula, random, nearby, descended = [], [], [], []
    for shape in SHAPES[:3]:
        G = gaussian(*shape)
        R = nearest_orthogonal(G)
        best = float((G - R).norm())
        formula.append(abs(best / float((torch.linalg.svdvals(G) - 1).norm()) - 1))
        noise = torch.stack([gaussian(*shape, seed=seed + 1) for seed in range(300)])
        random.append(float((G - sg.polar(noise)).norm(dim=(1, 2)).min()) - best)
        nearby.append(float((G - sg.polar(R + 0.01 * noise)).norm(dim=(1, 2)).min()) - best)
        descended.append(descended_distance(G) - best)
    return {"formula_error": formula, "random": random, "nearby": nearby, "descended": descended}


@computes("eccv/O12")
def direction() -> Mapping[str, Value]:
    """cos(G, UVᵀ) beside Σσ/(√r ‖σ‖), the length of UVᵀ for a small gradient, and whether U and V are kept."""
    cosines, formula, lengths, vectors = [], [], [], []
    for shape in SHAPES:
        G = gaussian(*shape)
        R, s = nearest_orthogonal(G), torch.linalg.svdvals(G)
        cosine = float((G * R).sum() / (G.norm() * R.norm()))
        cosines.append(cosine)
        formula.append(abs(cosine / float(s.sum() / (len(s) ** 0.5 * s.norm())) - 1))
        lengths.append(float(nearest_orthogonal(1e-3 * G).norm()) / math.sqrt(min(shape)))
        U, _, Vh = torch.linalg.svd(G, full_matrices=False)
        vectors.append(float((U.T @ R @ Vh.T - eye(len(s))).norm()))
    return {"cosine": cosines, "formula_error": formula, "length": lengths, "vectors_error": vectors}


@computes("eccv/O13")
def rank_deficient() -> Mapping[str, Value]:
    """diag(2, 0) is equally far from I and diag(1, −1); the library returns their mean, the limit of small ridges."""
    G, one, other = torch.diag(tensor(2, 0)), eye(2), torch.diag(tensor(1, -1))
    ridge = G @ sg.matrix_inv_sqrt(G.T @ G + 1e-12 * eye(2))
    return {
        "distances": [float((G - one).norm()), float((G - other).norm())],
        "from_mean": error(nearest_orthogonal(G), (one + other) / 2),
        "from_ridge": error(nearest_orthogonal(G), ridge),
    }


@computes("eccv/O14")
def treated_condition() -> Mapping[str, Value]:
    """κ(UVᵀ)."""
    return {"condition": [condition(nearest_orthogonal(gaussian(*shape))) for shape in SHAPES]}
