"""Whitening, pooling, colouring: Algorithms 1–3 and Eq. 26–33."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.nn import functional
from spectralgrad.testing import random_orthogonal, with_spectrum

from ..inputs import gaussian
from ..registry import computes
from ..value_conditions import Value

POINTS = 200


def features(d: int = 5, n: int = POINTS, seed: int = 0) -> Tensor:
    """n correlated points in d dimensions (d, n) with a mean other than zero."""
    return with_spectrum(np.linspace(0.2, 2, d), seed=seed) @ gaussian(d, n, seed=seed) + gaussian(d, 1, seed=seed + 1)


def centered(X: Tensor) -> Tensor:
    """X minus its mean over the points."""
    return X - X.mean(-1, keepdim=True)


def clamped_whitening(X: Tensor, eps: float) -> Tensor:
    """Algorithm 2: SX with S = V max(Λ, ε)^(-1/2) Vᵀ of the covariance XXᵀ/n (the features are centered)."""
    w, V = sg.eigh(X @ X.mT / X.shape[-1])
    return (V / w.clamp(min=eps).sqrt()) @ V.mT @ X


@computes("tpami/R16")
def clamped_eigenvalues() -> Mapping[str, Value]:
    """Whether a null direction that is clamped to ε influences the whitened batch and its gradient (Eq. 26–27)."""
    eps, n = 1e-2, 256
    w = np.array([0.0, 0.0, 0.0, 0.003, 0.2, 0.5, 1.0, 2.0])  # three null directions, and one below ε
    Q = random_orthogonal(8)
    white = torch.linalg.qr(centered(gaussian(8, n)).mT)[0].mT * n**0.5  # rows orthonormal up to √n
    X = (Q * torch.from_numpy(np.sqrt(w))) @ white
    null, small = Q[:, 0], Q[:, 3]
    z = gaussian(n, seed=1)
    z, step = z - z.mean(), 1e-6
    move = torch.outer(null, z)
    derivative = (clamped_whitening(X + step * move, eps) - clamped_whitening(X - step * move, eps)) / (2 * step)
    whitened = clamped_whitening(X, eps)
    return {
        "forward": float(((null @ X) / eps**0.5).abs().max()),
        "derivative": float(derivative.norm() / (z.norm() / eps**0.5)),
        "along_null": float((null @ derivative).norm() / (z.norm() / eps**0.5)),
        "variance_below_eps": float((small @ whitened).square().mean()),
    }


@computes("tpami/R18")
def whitened_covariance() -> Mapping[str, Value]:
    """The covariance of SX with M = XXᵀ as printed and with M = XXᵀ/n + εI."""
    X, eps, identity = features(), 0.1, torch.eye(5, dtype=torch.float64)
    C = centered(X)
    printed = sg.covariance(sg.matrix_inv_sqrt(C @ C.mT) @ X)
    M = sg.covariance(X, eps=eps)
    divided = sg.covariance(sg.matrix_inv_sqrt(M) @ X)
    return {
        "printed": float((printed - identity).abs().max()),
        "times_n": float((printed * POINTS - identity).abs().max()),
        "divided": float((divided - identity + eps * sg.matrix_power(M, -1)).abs().max()),
        "without_eps": float((sg.covariance(sg.matrix_inv_sqrt(sg.covariance(X)) @ X) - identity).abs().max()),
    }


@computes("tpami/R19")
def normalized_power() -> Mapping[str, Value]:
    """‖S‖ for S = M^α/√Σλ^(2α) (Eq. 28–29), and the pooling layer with its normalization."""
    X = features()
    M = sg.covariance(X)
    norms, layer = [], []
    for alpha in (0.25, 0.5, 1.0):
        S = sg.matrix_power(M, alpha) / sg.eigh(M).eigenvalues.pow(2 * alpha).sum().sqrt()
        pooled = functional.covariance_pooling(X[None], power=alpha, normalize=True, output="full")[0]
        norms.append(float(S.norm()) - 1)
        layer.append(float((pooled - S).abs().max()))
    return {"norms": norms, "layer": layer}


@computes("tpami/R20")
def whitening_and_coloring() -> Mapping[str, Value]:
    """Mean and covariance of S_c S_w (X_A − μ_A) + μ_B against X_B's (Eq. 30–33), by hand and by the layer."""
    content, style = features(seed=1), features(seed=5)
    moved = sg.matrix_sqrt(sg.covariance(style)) @ sg.matrix_inv_sqrt(sg.covariance(content)) @ centered(content)
    moved = moved + style.mean(-1, keepdim=True)
    layer = functional.wct(content[None], style[None], eps=0.0)[0]
    return {
        "covariance": float((sg.covariance(moved) - sg.covariance(style)).abs().max()),
        "mean": float((moved.mean(-1) - style.mean(-1)).abs().max()),
        "layer": float((layer - moved).abs().max()),
    }


@computes("tpami/R21")
def pca_and_zca() -> Mapping[str, Value]:
    """Covariances after PCA and ZCA whitening, and the distance of the points from where they were."""
    X = centered(features())
    M = sg.covariance(X)
    w, V = sg.eigh(M)
    zca, pca = sg.matrix_inv_sqrt(M) @ X, (V / w.sqrt()).mT @ X
    identity = torch.eye(5, dtype=torch.float64)
    nearest = float((zca - X).norm())
    rotated = min(float((random_orthogonal(5, seed=s) @ zca - X).norm()) for s in range(500))
    return {
        "covariances": [float((sg.covariance(white) - identity).abs().max()) for white in (zca, pca)],
        "pca": float((pca - X).norm()) / nearest,
        "rotated": rotated / nearest,
    }
