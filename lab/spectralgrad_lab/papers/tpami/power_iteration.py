"""Power iteration: its gradient, the Proposition, and deflation (Eq. 16–25, Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

from ..inputs import KEEP_ALL, SPECTRUM, gaussian, gradient, power_iteration_gradient, sym, vector_gradient
from ..registry import computes
from ..value_conditions import Value
from .gradients import DEGREES, EVEN


def only(index: int) -> Tensor:
    """A cotangent of the eigenvectors of a 6×6 matrix that reaches one vector only."""
    H = torch.zeros(6, 6, dtype=torch.float64)
    H[:, index] = gaussian(6, seed=1)
    return H


@computes("tpami/R10")
def recursion() -> Mapping[str, Value]:
    """Eq. 16–17 from a random start against autograd through the iterations, after symmetrization."""
    A, g = with_spectrum(EVEN), gaussian(6, seed=1)

    def leading(M: Tensor, steps: int) -> Tensor:
        return sg.eigh(M, method=sg.PI(iterations=steps, **KEEP_ALL)).eigenvectors[:, -1]

    errors = []
    for iterations in (1, 3, 19):
        iterates = [leading(A, steps) for steps in range(iterations + 1)]
        by_hand = sym(power_iteration_gradient(A, iterates, g))
        errors.append(relative_error(gradient(lambda M: leading(M, iterations), A, g), by_hand))  # noqa: B023
    return {"error": errors, "largest": max(errors)}


@computes("tpami/R11")
def dominant_vector() -> Mapping[str, Value]:
    """The gradient of K + 1 power iterations from the exact dominant vector against Taylor's of degree K."""
    A, H = with_spectrum(EVEN), only(-1)
    errors = {True: [], False: []}  # type: dict[bool, list[float]]
    for degree in DEGREES:
        series = vector_gradient(A, sg.Taylor(degree=degree), H)
        for unrolled, found in errors.items():
            power = sg.SVDPI(iterations=degree + 1, unrolled=unrolled, **KEEP_ALL)
            found.append(relative_error(vector_gradient(A, power, H), series))
    return {"unrolled": errors[True], "closed": errors[False], "largest": max(*errors[True], *errors[False])}


def orders(index: int, degree: int) -> tuple[list[float], list[float]]:
    """n − K for the number n of terms with which vector ``index`` sees smaller and larger eigenvalues.

    SVD-PI with K + 1 iterations and deflation has the coefficients (1 − x^n)/(λi − λj), x < 1 the ratio of the pair.
    """
    A, H = with_spectrum(EVEN), only(index)
    w, V = sg.eigh(A)
    g = vector_gradient(A, sg.SVDPI(iterations=degree + 1, unrolled=True, **KEEP_ALL), H)
    coefficient = 2 * ((V.mT @ g @ V) / (V.mT @ H))[:, index]
    found: tuple[list[float], list[float]] = ([], [])
    for j in range(6):
        if j != index:
            x = float(min(w[j], w[index]) / max(w[j], w[index]))
            terms = math.log(1 - float(coefficient[j] * (w[index] - w[j]))) / math.log(x)
            found[j > index].append(terms - degree)
    return found


@computes("tpami/R12")
def other_vectors() -> Mapping[str, Value]:
    """How many terms of the series K + 1 power iterations with deflation give beyond the dominant vector."""
    smaller, larger = [], []
    for degree in (3, 9):
        for index in (1, 2, 4):  # ascending: the fifth, fourth and second vector in the paper's order
            below, above = orders(index, degree)
            smaller += below
            larger += above
    A, H = with_spectrum(EVEN), gaussian(6, 6, seed=1)
    apart = [
        relative_error(
            vector_gradient(A, sg.SVDPI(iterations=k + 1, **KEEP_ALL), H), vector_gradient(A, sg.Taylor(degree=k), H)
        )
        for k in (1, 3, 9, 19)
    ]
    falls = all(before > after for before, after in pairwise(apart))
    return {"smaller": smaller, "larger": larger, "apart": apart, "falls": falls}


@computes("tpami/R13")
def line_23() -> Mapping[str, Value]:
    """Algorithm 1 line 23, Eq. 19 with the deflated matrices held fixed, against a deflation that is differentiated."""
    A, H, steps = with_spectrum(EVEN), gaussian(6, 6, seed=1), 300
    truth = vector_gradient(A, "svd", H)
    w, V = sg.eigh(A)
    written, M = torch.zeros_like(A), A
    for i in reversed(range(6)):
        v, term = V[:, i : i + 1], H[:, i : i + 1] - V[:, i : i + 1] * (V[:, i] @ H[:, i])
        for k in range(1, steps + 1):
            written = written + term @ v.mT / w[i] ** k
            term = M @ term
        M = M - M @ v @ v.mT
    attached = sg.SVDPI(iterations=steps, unrolled=True, **KEEP_ALL)
    return {
        "written": relative_error(sym(written), truth),
        "differentiated": relative_error(vector_gradient(A, attached, H), truth),
    }


@computes("tpami/R14")
def powers() -> Mapping[str, Value]:
    """M^k = Σ λi^k vi viᵀ (Eq. 20), ‖Mv‖ = λ (Eq. 21) and λvvᵀ = Mvvᵀ (Eq. 24)."""
    A = with_spectrum(SPECTRUM)
    w, V = sg.eigh(A)
    off = [float((sg.matrix_power(A, k) - torch.linalg.matrix_power(A, k)).abs().max()) for k in (1, 3, 10)]
    P = torch.einsum("id,jd->dij", V, V)
    return {
        "powers": off,
        "norms": float(((A @ V).norm(dim=0) - w).abs().max()),
        "projections": float((w[:, None, None] * P - A @ P).abs().max()),
    }


def deflated(M: Tensor, V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rayleigh quotients of Eq. 25 during deflation (Eq. 24), for vectors from the largest eigenvalue down.

    Returns the quotients with the matrix before each step (Algorithm 1 line 7), those with the matrix after it (the
    index that Eq. 25 prints), and the matrix that is left.
    """
    before, after = [], []
    for v in V.flip(-1).unbind(-1):
        before.append(v @ M @ v / (v @ v))
        M = M - torch.outer(M @ v, v)
        after.append(v @ M @ v / (v @ v))
    return torch.stack(before), torch.stack(after), M


@computes("tpami/R15")
def rayleigh_quotients() -> Mapping[str, Value]:
    """Relative errors of deflated Rayleigh quotients in float32 at condition 1e4, ten matrices of each size."""
    errors, solver, negative, indefinite, printed = [], [], 0, 0, 0.0
    for d in (8, 16, 32, 64):
        for seed in range(10):
            A = with_spectrum(np.logspace(-4, 0, d), dtype=torch.float32, seed=seed)
            w, V = sg.eigh(A)
            quotients, after, left = deflated(A, V)
            truth = torch.linalg.eigvalsh(A.double()).flip(0)
            off = (quotients / truth - 1).abs()
            errors.append((float(off[0]), float(off[-1]), float(off.max())))
            solver.append(float((w.flip(0) / truth - 1).abs().max()))
            printed = max(printed, float((after / truth).abs().max()))
            negative += int((quotients <= 0).sum())
            indefinite += float(torch.linalg.eigvalsh(sym(left).double())[0]) < 0
    first, last, worst = (max(column) for column in zip(*errors, strict=True))
    return {
        "growth": last / first,
        "worst": worst,
        "solver": max(solver),
        "negative": negative,
        "indefinite": indefinite / 40,
        "printed_index": printed,
    }
