"""The rules and gradients of the papers at 50 digits, term by term as printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import mpmath
import torch
from torch import Tensor

import spectralgrad as sg

from .inputs import EPS

mp: Any = mpmath.mp.clone()
mp.dps = 50


def mp_matrix(A: Tensor) -> Any:
    """A tensor as a matrix of mpmath."""
    return mp.matrix(A.tolist())


def from_mp(M: Any) -> Tensor:
    """A matrix of mpmath, rounded to float64."""
    return torch.tensor([[float(M[i, j]) for j in range(M.cols)] for i in range(M.rows)], dtype=torch.float64)


def mp_eigensystem(A: Tensor) -> tuple[list[Any], Any]:
    """Ascending eigenvalues and eigenvectors of ``A``, with the signs that sg.eigh chose."""
    w, V = mp.eigsy(mp_matrix(A))
    signs = torch.sign((from_mp(V) * sg.eigh(A).eigenvectors).sum(0)).tolist()
    return list(w), V * mp.diag(signs)


def mp_rule_gradient(V: Any, K: Any, coupling: Any, diagonal: Any) -> Tensor:
    """The symmetric part of TPAMI Eq. 2; ``coupling`` is Vᵀ dL/dV."""
    d = V.rows
    inner = mp.matrix(d, d)
    for i in range(d):
        for j in range(d):
            inner[i, j] = (K[j, i] * coupling[i, j] + K[i, j] * coupling[j, i]) / 2
        inner[i, i] = diagonal[i]
    return from_mp(V * inner * V.T)


def mp_gaps(rule: Any, w: Iterable[Any]) -> Any:
    """The rule's K̂ as its paper writes it, for ascending eigenvalues."""
    values = [mp.mpf(x) for x in w]
    if isinstance(rule, sg.TopN):  # ICCV Eq. 11: the discarded eigenvalues are set to zero
        values = [x if i >= len(values) - rule.keep else mp.mpf(0) for i, x in enumerate(values)]
    top = max(abs(x) for x in values)
    K = mp.matrix(len(values), len(values))
    for i, a in enumerate(values):
        for j, b in enumerate(values):
            if i != j:
                K[i, j] = _gap(rule, a, b, top)
    return K


def _gap(rule: Any, a: Any, b: Any, top: Any) -> Any:
    if a == b:
        return mp.inf if rule.name == "svd" else mp.mpf(0)
    return _FORMULAS[rule.name](rule, a, b, top)


def _clipped(rule: Any, a: Any, b: Any, top: Any) -> Any:
    limit = mp.mpf(rule.threshold)
    return max(-limit, min(limit, 1 / (a - b)))


def _series(a: Any, b: Any, terms: int) -> Any:
    """±(1/λ) Σ x^k for k < terms, x the smaller over the larger; positive if a > b."""
    big, small = max(a, b), min(a, b)
    return mp.sign(a - b) * mp.fsum((small / big) ** k for k in range(terms)) / big


def _floored(rule: Any, a: Any, b: Any, top: Any) -> Any:
    cut = mp.mpf(64 * EPS if rule.floor is None else rule.floor) * max(a, b)
    return 1 / (a - b) if abs(a - b) >= cut else (a - b) / cut**2


def _masked(rule: Any, a: Any, b: Any, top: Any) -> Any:
    cut = mp.mpf(EPS ** (2 / 3) if rule.tolerance is None else rule.tolerance) * top
    return 1 / (a - b) if abs(a - b) > cut else mp.mpf(0)


_FORMULAS: dict[str, Callable[..., Any]] = {
    "svd": lambda rule, a, b, top: 1 / (a - b),
    "svd-clip": _clipped,
    "svd-trunc": _clipped,
    "svd-topn": lambda rule, a, b, top: 1 / (a - b),
    "svd-taylor": lambda rule, a, b, top: _series(a, b, rule.degree + 1),
    "svd-pade": _floored,
    "svd-pi": lambda rule, a, b, top: _series(a, b, rule.iterations - (a < b)),
    "lorentzian": lambda rule, a, b, top: (a - b) / ((a - b) ** 2 + (mp.mpf(rule.broadening) * top) ** 2),
    "masked": _masked,
    "svd-inv": lambda rule, a, b, top: 1 / (a - b),
}
