"""The covariance, its square root and their gradient (Eq. 1–6)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import paired_spectrum, relative_error, with_spectrum

from ..inputs import eq2, gaussian, gradient, sym, uniform
from ..registry import computes
from ..value_conditions import Value


def centering(n: int) -> Tensor:
    """Ī = (I − 11ᵀ/N)/N of Eq. 1."""
    return (torch.eye(n, dtype=torch.float64) - 1 / n) / n


def eq5(P: Tensor, G: Tensor) -> Tensor:
    """Eq. 4–5 for Q = √P and a cotangent G that need not be symmetric: dl/dP as printed."""
    w, U = sg.eigh(P)
    return eq2(U, sg.Analytic().gaps(w), (G + G.mT) @ U * w.sqrt(), (U.mT @ G @ U).diagonal() / (2 * w.sqrt()))


@computes("iccv/P1")
def covariance() -> Mapping[str, Value]:
    """XĪXᵀ of Eq. 1, numpy's biased covariance and the library's."""
    X = gaussian(6, 20) + 3
    printed = X @ centering(20) @ X.mT
    numpy = torch.from_numpy(np.cov(X.numpy(), bias=True))
    return {
        "numpy": float((printed - numpy).abs().max()),
        "library": float((printed - sg.covariance(X)).abs().max()),
    }


@computes("iccv/P2")
def chain() -> Mapping[str, Value]:
    """Eq. 4–6, (D + Dᵀ)XĪ with D of Eq. 5, against our gradients and a difference quotient."""
    X, G, Z, step = gaussian(6, 20), gaussian(6, 6, seed=1), gaussian(6, 20, seed=2), 1e-6
    D = eq5(sg.covariance(X), G)
    printed = (D + D.mT) @ X @ centering(20)

    def root(method: str) -> Tensor:
        return gradient(lambda Y: sg.matrix_sqrt(sg.covariance(Y), method=method), X, G)

    ahead, behind = ((sg.matrix_sqrt(sg.covariance(X + s * Z)) * G).sum() for s in (step, -step))
    quotient = (ahead - behind) / (2 * step)
    return {
        "svd": relative_error(root("svd"), printed),
        "exact": relative_error(root("exact"), printed),
        "difference_quotient": float(((printed * Z).sum() / quotient - 1).abs()),
    }


@computes("iccv/P3")
def asymmetry() -> Mapping[str, Value]:
    """‖D − Dᵀ‖/‖D‖ for D of Eq. 5 with close eigenvalues, and its symmetric part against the true gradient."""
    P, G = with_spectrum(paired_spectrum(6, 10.0, 1e-3)), gaussian(6, 6, seed=1)
    D = eq5(P, G)
    true = gradient(sg.matrix_sqrt, P, G)
    return {
        "asymmetry": float((D - D.mT).norm() / D.norm()),
        "alone": relative_error(D, true),
        "symmetric_part": relative_error(sym(D), true),
    }


@computes("iccv/P39")
def pooled_size() -> Mapping[str, Value]:
    """The number of entries on and above the diagonal of the pooled matrix of 256 channels, and the layer's."""
    S = sg.covariance_sqrt(uniform(256, 7))
    rows, columns = torch.triu_indices(*S.shape)
    return {
        "numbers": S[rows, columns].numel(),
        "layer": sg.nn.CovariancePooling(256)(uniform(1, 256, 7).float()).shape[-1],
        "asymmetry": relative_error(S, S.mT),
    }
