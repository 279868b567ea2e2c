"""Covariances with fewer positions than channels: rank, condition number, gradient (Table 1, sections 3.2 and D)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import relative_error

from ...published.printed import printed
from ..drawing import COLORS, canvas, dress, rounded
from ..inputs import EPS, eq2, gaussian, gradient, sym, tensor
from ..registry import computes, draws
from ..value_conditions import Value
from .root_gradient import centering

CHANNELS, POSITIONS = 256, 13 * 13
"""The features of AlexNet before pooling."""
RELEASED_TOPN = 256 - 50
"""The released code sets the last 50 eigenvalues to ε; the paper keeps 200."""


def features(seed: int) -> Tensor:
    """Random features after a ReLU, of the size AlexNet has before pooling."""
    return gaussian(CHANNELS, POSITIONS, seed=seed).clamp_min(0)


def repaired(K: Tensor) -> Tensor:
    """The released repair of overflow: +∞ and NaN become the largest finite entry, −∞ the smallest."""
    finite = K[K.isfinite()]
    return torch.nan_to_num(K, nan=float(finite.max()), posinf=float(finite.max()), neginf=float(finite.min()))


@computes("iccv/P7")
def topn_beyond_the_rank() -> Mapping[str, Value]:
    """How many of the kept eigenvalues of 256×169 features are zero, for the paper's N and the released one."""
    w = sg.eigh(sg.covariance(features(0))).eigenvalues
    zero = w < CHANNELS * EPS * w[-1]
    paper = sg.TopN().keep
    return {
        "kept": paper,
        "rank": int((~zero).sum()),
        "zeros_kept": int(zero[-paper:].sum()),
        "zeros_kept_released": int(zero[-RELEASED_TOPN:].sum()),
    }


@computes("iccv/P8")
def truncation() -> Mapping[str, Value]:
    """Eq. 12 at a tie, as written and skew, and the error of the root's gradient that it causes."""
    w = tensor(0.5, 1.0, 1.0)
    K, written = sg.Trunc().gaps(w), sg.Trunc(faithful=True).gaps(w)
    A, G = torch.diag(w), sym(gaussian(3, 3))

    def error(rule: sg.Method) -> float:
        return relative_error(gradient(lambda M: sg.matrix_sqrt(M, method=rule), A, G), gradient(sg.matrix_sqrt, A, G))

    return {
        "written": [float(written[1, 2]), float(written[2, 1])],
        "asymmetry_written": float((written + written.mT).abs().max()),
        "asymmetry_skew": float((K + K.mT).abs().max()),
        "error_written": error(sg.Trunc(faithful=True)),
        "error_skew": error(sg.Trunc()),
    }


@computes("iccv/P31")
def condition_numbers() -> Mapping[str, Value]:
    """Rank and computed condition numbers of 256×169 features, and the scale that the printed numbers would mean."""
    spectra = [torch.linalg.eigvalsh(sg.covariance(features(seed))) for seed in range(10)]
    centered = features(0) - features(0).mean(1, keepdim=True)
    rows = printed("iccv")["table-1"]["rows"]["MPN-COV"]
    return {
        "rank": int(torch.linalg.matrix_rank(centered)),
        "unclamped": float(torch.stack([w[-1] / w.abs().min() for w in spectra]).mean()),
        "clamped": float(torch.stack([w[-1] / w.clamp_min(EPS)[0] for w in spectra]).mean()),
        "largest": float(torch.stack([w[-1] for w in spectra]).mean()),
        "implied_largest": [float(cell) * EPS for cell in rows],
        "spectrum": rounded(spectra[0].flip(0)),
    }


@draws("iccv/P31")
def draw_spectrum(values: Mapping[str, Any]) -> Any:
    """The computed eigenvalues in falling order; those below zero by their size."""
    figure, axes = canvas(width=6.0, height=3.8)
    ranks = range(1, CHANNELS + 1)
    signs = (("above zero", 1, "blue"), ("below zero, by size", -1, "red"))
    for label, sign, color in signs:
        points = [(i, abs(v)) for i, v in zip(ranks, values["spectrum"], strict=True) if v * sign > 0]
        axes.plot(*zip(*points, strict=True), ".", color=COLORS[color], markersize=4, label=label)
    axes.axhline(EPS, color=COLORS["gray"], linestyle="--", linewidth=0.9, label="ε = 2.2e-16, where they are clamped")
    axes.axvline(POSITIONS - 1, color=COLORS["gray"], linewidth=0.9)
    axes.annotate("rank 168", (POSITIONS - 1, 1e-8), xytext=(5, 0), textcoords="offset points", fontsize=8)
    dress(axes, yscale="log", xlabel="number of the eigenvalue", ylabel="computed eigenvalue", legend="center left")
    axes.set_title("Covariance of 256 channels over 13 × 13 positions, random features", fontsize=9, loc="left")
    return figure


@computes("iccv/P40")
def realistic_gradient() -> Mapping[str, Value]:
    """Eq. 4–6 on 256×169 features with eigenvalues clamped at ε and the released repair, against the true gradient.

    The centred features have full column rank, so the root is a smooth function of them, and the library's exact
    gradient is checked with a difference quotient.
    """
    X, G, Z = features(0), sym(gaussian(CHANNELS, CHANNELS, seed=1)), gaussian(CHANNELS, POSITIONS, seed=2)
    true = gradient(sg.covariance_sqrt, X, G)
    step = 1e-6
    ahead, behind = ((sg.covariance_sqrt(X + s * Z) * G).sum() for s in (step, -step))
    w, U = torch.linalg.eigh(sg.covariance(X))
    w = w.clamp_min(EPS)
    K = repaired(sg.Analytic().gaps(w))

    def to_covariance(K: Tensor) -> Tensor:
        return eq2(U, K, 2 * G @ U * w.sqrt(), (U.mT @ G @ U).diagonal() / (2 * w.sqrt()))

    def error(K: Tensor) -> float:
        return relative_error(2 * sym(to_covariance(K)) @ X @ centering(POSITIONS), true)

    return {
        "reference": float(((true * Z).sum() / ((ahead - behind) / (2 * step)) - 1).abs()),
        "largest_entry": float(K.abs().max()),
        "covariance_gradient": float(to_covariance(K).norm() / true.norm()),
        "plain": error(K),
        "taylor": error(sg.Taylor(degree=100).gaps(w)),
        "trunc": error(sg.Trunc().gaps(w)),
    }
