"""The gradient of the eigenvectors (Eq. 2 and 4), its bound (Eq. 15) and what numbers can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

from ..inputs import eq2, gaussian, sym, tensor, uniform, vector_gradient
from ..registry import computes
from ..value_conditions import Value

EVEN = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Six eigenvalues at equal distances."""
DEGREES = (0, 1, 3, 9, 19)


@computes("tpami/R3")
def float32_range() -> Mapping[str, Value]:
    """The smallest and the largest numbers of float32 against section 2.1."""
    with np.errstate(over="ignore", under="ignore"):
        return {
            "kept": float(np.float32(1.40e-45)),
            "half": float(np.float32(0.7e-45)),
            "largest": float(np.finfo(np.float32).max),
            "above": float(np.float32(3.41e38)),
        }


@computes("tpami/R4")
def gradient_of_vectors() -> Mapping[str, Value]:
    """⟨Eq. 2, Z⟩ against a central difference of ⟨V, H⟩ in a symmetric direction Z, and its symmetric part."""
    A, H, Z = with_spectrum(EVEN), gaussian(6, 6, seed=1), sym(gaussian(6, 6, seed=2))
    w, V = sg.eigh(A)
    printed, step = eq2(V, sg.Analytic().gaps(w), H), 1e-6

    def loss(M: Tensor) -> Tensor:
        vectors = sg.eigh(M).eigenvectors
        return (vectors * torch.sign((vectors * V).sum(0)) * H).sum()  # an eigenvector's sign is arbitrary

    difference = (loss(A + step * Z) - loss(A - step * Z)) / (2 * step)
    return {
        "directional": abs(float((printed * Z).sum() / difference) - 1),
        "autograd": relative_error(sym(printed), vector_gradient(A, "svd", H)),
        "size": float(printed.norm() / sym(printed).norm()),
    }


def leading_ratio(w: Tensor, method: sg.GapMethod, g: Tensor) -> Tensor:
    """‖gradient of ⟨v, g⟩‖ before symmetrization over ‖g‖, for the leading vector of diag(w), in a batch.

    The part u vᵀ with u ⟂ v has √2 times the norm of its symmetric part.
    """
    H = torch.zeros(*w.shape, w.shape[-1], dtype=torch.float64)
    H[..., -1] = g
    return 2**0.5 * torch.linalg.matrix_norm(vector_gradient(torch.diag_embed(w), method, H)) / g.norm(dim=-1)


@computes("tpami/R9")
def gradient_bound() -> Mapping[str, Value]:
    """The norm of Eq. 12 over the bounds n(K+1)/ε and (K+1)/λi of Eq. 15: 300 random spectra and the worst one."""
    w, eps = uniform(300, 6, low=0.05).sort(-1).values, 0.05
    g = gaussian(300, 6, seed=1)
    printed, sharp, entries, attained = [], [], [], []
    for degree in DEGREES:
        rule = sg.Taylor(degree=degree)
        ratio = leading_ratio(w, rule, g)
        printed.append(float((ratio * eps / (6 * (degree + 1))).max()))
        sharp.append(float((ratio * w[:, -1] / (degree + 1)).max()))
        entries.append(float((rule.gaps(w).abs().amax((-2, -1)) / rule.bound(w)).max()))
        tight = leading_ratio(tensor(0.5, 1 - 1e-9, 1.0), rule, tensor(0.0, 1.0, 0.0))
        attained.append(float(tight) / (degree + 1))
    return {"printed": printed, "sharp": sharp, "entries": entries, "attained": attained, "largest": max(sharp)}


@computes("tpami/R23")
def scaled_by_norm() -> Mapping[str, Value]:
    """K/‖K‖ for a matrix with two equal eigenvalues (section 3.5), and for two that nearly are."""
    tied, close = sg.Analytic().gaps(tensor(1.0, 1.0, 2.0)), sg.Analytic().gaps(tensor(1.0, 1 + 1e-9, 2.0))
    return {
        "norm": float(tied.norm()),
        "scaled": float((tied / tied.norm())[0, 1]),
        "others": [float(entry) for entry in (tied / tied.norm())[2, :2]],
        "close_is_finite": bool((close / close.norm()).isfinite().all()) and math.isfinite(float(close.norm())),
    }
