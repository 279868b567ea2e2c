"""The law behind all remedies: a rule multiplies the true gradient, entry by entry (G1–G4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

from ..fifty_digits import from_mp, mp, mp_eigensystem, mp_matrix
from ..inputs import SPECTRUM, eq2, gaussian, gradient, paired, sym, vector_gradient
from ..registry import computes
from ..value_conditions import Value
from .compared import ROOTS, root_by
from .refined import true_gradient

FACTORS: Mapping[sg.GapMethod, Callable[[Tensor, Tensor], Tensor]] = {
    sg.Analytic(): lambda x, g: torch.ones_like(x),
    sg.Pade(): lambda x, g: torch.ones_like(x),
    sg.Taylor(): lambda x, g: 1 - x**10,
    sg.Taylor(degree=100): lambda x, g: 1 - x**101,
    sg.Clip(threshold=50.0): lambda x, g: torch.clamp(50 * g, max=1),
    sg.Lorentzian(broadening=0.05): lambda x, g: g**2 / (g**2 + 0.05**2),
    sg.Masked(tolerance=0.02): lambda x, g: (g > 0.02).double(),
}
"""K̂(λi − λj) as the rules' formulas give it, in the ratio x ≤ 1 and the gap g of two eigenvalues."""


@computes("gradients/G1")
def reference() -> Mapping[str, Value]:
    """The 50-digit gradient X of √A in SX + XS = G and a difference quotient; two other references against it."""
    A, reference, G = paired(1e2, 1e-6)
    w, V = mp_eigensystem(A)
    s = [mp.sqrt(x) for x in w]
    T = V.T * mp_matrix(G) * V
    X = V * mp.matrix([[T[i, j] / (s[i] + s[j]) for j in range(8)] for i in range(8)]) * V.T
    S = V * mp.diag(s) * V.T
    return {
        "lyapunov": float(mp.mnorm(S * X + X * S - mp_matrix(G), "f")),
        "difference_quotient": _quotient_error(mp_matrix(A), X, mp_matrix(G)),
        "reference": relative_error(reference.gradient("sqrt", G), from_mp(X)),
        "refined": relative_error(true_gradient(A, "sqrt", G), from_mp(X)),
    }


def _quotient_error(A: Any, X: Any, G: Any) -> float:
    """How far the difference quotient of ⟨√A, G⟩ in a random direction is from ⟨X, direction⟩, at 50 digits."""
    Z, step = mp_matrix(sym(gaussian(8, 8, seed=4))), mp.mpf(10) ** -20

    def dot(M: Any, N: Any) -> Any:
        return mp.fsum(M[i, j] * N[i, j] for i in range(8) for j in range(8))

    def loss(M: Any) -> Any:
        values, vectors = mp.eigsy(M)
        return dot(vectors * mp.diag([mp.sqrt(x) for x in values]) * vectors.T, G)

    return float(abs((loss(A + step * Z) - loss(A - step * Z)) / (2 * step) / dot(X, Z) - 1))


@computes("gradients/G2")
def multiplied() -> Mapping[str, Value]:
    """In the eigenbasis, the gradient by a rule over the true one, less K̂(λi − λj); the largest entry of each rule."""
    A, G = with_spectrum(SPECTRUM), sym(gaussian(8, 8, seed=2))
    w, V = sg.eigh(A)
    low, high = torch.minimum(w, w[:, None]), torch.maximum(w, w[:, None])
    deviation: dict[str, list[float]] = {root: [] for root in ROOTS}
    bias = []
    for rule, formula in FACTORS.items():
        factor = formula(low / high, high - low).fill_diagonal_(1)
        bias.append(float((1 - rule.bias(w) - factor).abs().max()))
        for root in ROOTS:
            true, got = (V.mT @ gradient(root_by(method, root), A, G) @ V for method in (sg.Exact(), rule))
            deviation[root].append(float((got / true - factor).abs().max()))
    worst = max(*deviation["sqrt"], *deviation["inv_sqrt"])
    return {"rules": [str(rule) for rule in FACTORS], **deviation, "bias": bias, "worst": worst}


@computes("gradients/G3")
def unsymmetrized() -> Mapping[str, Value]:
    """The norm of Eq. 2 of TPAMI for √A over the norm of the true gradient, before and after symmetrising."""
    raw_over_true, symmetrized = [], []
    for gap in (1e-2, 1e-6, 1e-10):
        A, reference, G = paired(1e2, gap)
        w, V = sg.eigh(A)
        raw = eq2(V, sg.Analytic().gaps(w), 2 * G @ V * w.sqrt(), (V.mT @ G @ V).diagonal() / (2 * w.sqrt()))
        true = reference.gradient("sqrt", G).norm()
        raw_over_true.append(float(raw.norm() / true))
        symmetrized.append(float(sym(raw).norm() / true))
    return {"raw": raw_over_true, "symmetrized": symmetrized}


@computes("gradients/G4")
def symmetric_part() -> Mapping[str, Value]:
    """The backward pass of torch.linalg.eigh, and of method "svd", against the symmetric part of Eq. 2."""
    A, H = with_spectrum(SPECTRUM[:6]), gaussian(6, 6, seed=2)
    by_torch = gradient(lambda M: torch.linalg.eigh(M).eigenvectors, A, H)
    pairs = (torch.linalg.eigh(A), sg.eigh(A))  # each with its own signs of the vectors
    expected = [sym(eq2(V, sg.Analytic().gaps(w), H)) for w, V in pairs]
    return {
        "torch": relative_error(by_torch, expected[0]),
        "ours": relative_error(vector_gradient(A, "svd", H), expected[1]),
        "asymmetry": float((by_torch - by_torch.mT).norm() / by_torch.norm()),
    }
