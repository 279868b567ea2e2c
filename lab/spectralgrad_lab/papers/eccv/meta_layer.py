"""The SVD meta-layer: covariance, roots and their gradients (Eq. 2–10, 43)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

import spectralgrad as sg

from ..inputs import eq2, gaussian, gradient, sym
from ..registry import computes
from ..value_conditions import Value
from .matrices import error, eye


def centring(n: int) -> Tensor:
    """J of Eq. 2."""
    return (eye(n) - 1 / n) / n


@computes("eccv/O1")
def covariance_and_roots() -> Mapping[str, Value]:
    """P = XJXᵀ (Eq. 2) beside the library's covariance; Q² = P and SPS = I for its roots (Eq. 4)."""
    X = gaussian(6, 40)
    P = X @ centring(40) @ X.T
    Q, S = sg.matrix_sqrt(P), sg.matrix_inv_sqrt(P)
    return {
        "covariance_error": error(sg.covariance(X), P),
        "square_root_error": error(Q @ Q, P),
        "inverse_root_error": error(S @ P @ S, eye(6)),
    }


def chain_error(power: float) -> float:
    """Eq. 5–8 from ∂l/∂Q (power ½) or ∂l/∂S (power −½) to ∂l/∂X, beside the library's gradient.

    Of Eq. 6 the diagonal is taken, which is what Eq. 7 uses.
    """
    X, G, J = gaussian(5, 30), sym(gaussian(5, 5, seed=1)), centring(30)
    w, U = torch.linalg.eigh(X @ J @ X.T)
    to_vectors = (G + G.T) @ U * w**power
    to_values = power * w ** (power - 1) * (U.T @ G @ U).diagonal()
    to_covariance = eq2(U, sg.Analytic().gaps(w), to_vectors, to_values)
    root = sg.matrix_sqrt if power > 0 else sg.matrix_inv_sqrt
    ours = gradient(lambda X: root(X @ J @ X.T), X, G)
    return error((to_covariance + to_covariance.T) @ X @ J, ours)


@computes("eccv/O2")
def gradient_chain() -> Mapping[str, Value]:
    """The error of the printed chain of gradients for both roots."""
    return {"square_root_error": chain_error(0.5), "inverse_root_error": chain_error(-0.5)}


@computes("eccv/O3")
def updated_covariance() -> Mapping[str, Value]:
    """The four terms of Eq. 10 beside ((W − ηG)Y)((W − ηG)Y)ᵀ."""
    W, G, Y, rate = gaussian(4, 6), gaussian(4, 6, seed=1), gaussian(6, 20, seed=2), 0.3
    YY = Y @ Y.T
    expanded = W @ YY @ W.T - rate * G @ YY @ W.T - rate * W @ YY @ G.T + rate**2 * G @ YY @ G.T
    updated = (W - rate * G) @ Y
    return {"expansion_error": error(expanded, updated @ updated.T)}


@computes("eccv/O30")
def whitening_as_printed() -> Mapping[str, Value]:
    """Eq. 43, (XXᵀ)^(-1/2) X, of features whose mean is not zero: second moments, mean and covariance."""
    X = gaussian(4, 50) + 3
    white = sg.matrix_inv_sqrt(X @ X.T) @ X
    return {
        "second_moment_error": error(white @ white.T, eye(4)),
        "mean": float(white.mean(1).norm()),
        "covariance_error": float((sg.covariance(white) - eye(4)).norm()),
    }
