"""The true gradient of A^(1/2) and A^(-1/2) for matrices that are too large for a 50-digit eigensolver.

S = A^(1/2) and the gradient solve S·S = A and SX + XS = G. Approximate solutions are refined: the residual is computed
in integers (fixed point, 48 digits), the correction in float64 with the eigenvectors of A. Each step adds at
least three digits, and no eigenvalue has to be separated from another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

BITS = 160
STEPS = 8
ENOUGH = 1e-28  # a correction this small, relative to the whole, is the last one

_to_fixed = np.frompyfunc(lambda x: int(math.ldexp(x, BITS)), 1, 1)
_to_float = np.frompyfunc(lambda n: n / (1 << BITS), 1, 1)


def true_gradient(A: Tensor, root: str, G: Tensor) -> Tensor:
    """The gradient (d, d) of ⟨f(A), G⟩ for f the ``root`` "sqrt" or "inv_sqrt", correct to float64's last digits.

    Args:
        A: symmetric positive definite matrix, taken as exact; condition number at most 1e13.
        root: which function.
        G: symmetric matrix.

    Example:
        >>> true_gradient(4 * torch.eye(2, dtype=torch.float64), "sqrt", torch.ones(2, 2))
        tensor([[0.2500, 0.2500],
                [0.2500, 0.2500]], dtype=torch.float64)
    """
    w, V = np.linalg.eigh(A.double().numpy())
    s = np.sqrt(w)

    def lyapunov(R: np.ndarray) -> np.ndarray:
        """X with SX + XS = R, in float64."""
        return V @ ((V.T @ R @ V) / (s[:, None] + s)) @ V.T

    exact = _fixed(A.double().numpy())
    S = _refined((V * s) @ V.T, lambda S: exact - _product(S, S), lyapunov)
    target = _fixed(G.double().numpy())
    if root == "inv_sqrt":
        one = _fixed(np.eye(len(s)))
        Z = _refined((V / s) @ V.T, lambda Z: one - _product(S, Z), lambda R: (V / s) @ V.T @ R)
        target = -_product(_product(Z, target), Z)
    X = _refined(lyapunov(_float(target)), lambda X: target - _product(S, X) - _product(X, S), lyapunov)
    return torch.from_numpy(_float(X))


def _refined(start: np.ndarray, residual: Callable[[Any], Any], correct: Callable[[np.ndarray], np.ndarray]) -> Any:
    found = _fixed(start)
    for _ in range(STEPS):
        correction = correct(_float(residual(found)))
        found = found + _fixed(correction)
        if np.abs(correction).max() <= ENOUGH * np.abs(start).max():
            break
    return found


def _product(X: Any, Y: Any) -> Any:
    return (X @ Y) >> BITS


def _fixed(X: np.ndarray) -> Any:
    return _to_fixed(X)


def _float(X: Any) -> np.ndarray:
    return _to_float(X).astype(np.float64)
