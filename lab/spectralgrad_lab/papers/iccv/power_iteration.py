"""Power iteration and its gradient (Eq. 13, sections A and B)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

from ..inputs import KEEP_ALL, SPECTRUM, gaussian, power_iteration_gradient, sym, vector_gradient
from ..registry import computes
from ..value_conditions import Value

EVEN = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
"""Six eigenvalues well apart."""


def leading_cotangent(d: int) -> Tensor:
    """A cotangent of the leading eigenvector alone."""
    H = torch.zeros(d, d, dtype=torch.float64)
    H[:, -1] = gaussian(d, seed=1)
    return H


@computes("iccv/P9")
def eq_13() -> Mapping[str, Value]:
    """Eq. 13 as printed, u₁((Kᵀ∘(u₁ᵀ dl/du₁)))u₁ᵀ, with all of K and with K₁₁; the true gradient beside it."""
    A, H = with_spectrum(SPECTRUM), leading_cotangent(8)
    w, V = sg.eigh(A)
    u, K, inner = V[:, -1:], sg.Analytic().gaps(w), V[:, -1] @ H[:, -1]
    try:
        (u @ (K.mT * inner)) @ u.mT
    except RuntimeError as problem:
        conformable = "shapes cannot be multiplied" not in str(problem)
    else:
        conformable = True
    return {
        "conformable": conformable,
        "with_one_entry": float((u * (K[-1, -1] * inner) @ u.mT).norm()),
        "true": float(vector_gradient(A, "svd", H).norm()),
    }


@computes("iccv/P10")
def released() -> Mapping[str, Value]:
    """The series of the released code, Σ Aᵏ(I − UUᵀ)/‖AU‖ᵏ⁺¹ with all of U, as a share of Algorithm 1's gradient."""
    H = gaussian(8, 8, seed=1)
    ratios, shares = [], []
    for top in (2.0, 1.0, 0.951):
        A = with_spectrum((*SPECTRUM[:-1], top))
        w, U = sg.eigh(A)
        size = (A @ U).norm()
        term = (torch.eye(8, dtype=torch.float64) - U @ U.mT) / size
        total = torch.zeros_like(A)
        for _ in range(21):
            total, term = total + term, A @ term / size
        ratios.append(float(w[-1] / w[-2]))
        shares.append(float((total @ H @ U.mT).norm() / vector_gradient(A, sg.SVDPI(**KEEP_ALL), H).norm()))
    return {"ratios": ratios, "shares": shares}


@computes("iccv/P28")
def at_a_tie() -> Mapping[str, Value]:
    """Power iteration with λ1 = λ2: its residual, and its distance from the projection of the start."""
    A = with_spectrum([0.2, 0.4, 0.5, 1.0, 1.0])

    def leading(steps: int) -> Tensor:
        return sg.eigh(A, method=sg.PI(iterations=steps, **KEEP_ALL)).eigenvectors[:, -1]

    v, start = leading(200), leading(0)
    projection = sg.spectral_projector(A, 2) @ start
    return {
        "residual": float((A @ v - v).norm()),
        "change": float((v - leading(400)).norm()),
        "projection": float((v - projection / projection.norm()).norm()),
    }


@computes("iccv/P29")
def eq_35() -> Mapping[str, Value]:
    """Eq. 35 with n = 6 and k = 3 as printed, and with ‖λu‖ᵏ and a sum up to λ_n."""
    P, k = with_spectrum(EVEN), 3
    w, U = sg.eigh(P)
    w, U = w.flip(0), U.flip(1)  # as in the paper, the largest first
    u, size = U[:, 1], float(w[1])
    exact, norm = torch.linalg.matrix_power(P, k), float((P @ u).norm() ** k)

    def series(terms: int) -> Tensor:
        return (U[:, :terms] * w[:terms] ** k) @ U[:, :terms].mT

    return {
        "printed_norm": float((size**k * u).norm() ** k) / norm,
        "meant_norm": float((size * u).norm() ** k) / norm,
        "printed_sum": relative_error(series(3), exact),
        "meant_sum": relative_error(series(6), exact),
    }


@computes("iccv/P30")
def power_iteration_is_taylor() -> Mapping[str, Value]:
    """Eq. 32 along iterates that all equal u₁ (Eq. 33) against Eq. 36, and the drift of iterates from any u_i."""
    A, H = with_spectrum(EVEN), leading_cotangent(6)
    V = sg.eigh(A).eigenvectors
    u = V[:, -1]

    def error(degree: int) -> float:
        unrolled = sym(power_iteration_gradient(A, [u] * (degree + 2), H[:, -1]))
        return relative_error(unrolled, vector_gradient(A, sg.Taylor(degree=degree), H))

    def drift(v: Tensor) -> float:
        after = A @ v
        return float((after / after.norm() - v).norm())

    limit = relative_error(vector_gradient(A, sg.Taylor(degree=400), H), vector_gradient(A, "svd", H))
    return {
        "errors": [error(degree) for degree in (0, 1, 9, 19)],
        "limit": limit,
        "drift": [drift(V[:, i]) for i in range(6)],
    }
