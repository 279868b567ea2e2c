"""Equal eigenvalues: the identity, the released signs, and exact ties of multiplicity eight (G9, G10)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import relative_error

from ..inputs import gaussian, gradient, sym
from ..registry import computes
from ..value_conditions import Value
from .compared import EXPONENT, ROOTS, composed, plain_eigh, root_by, torch_eigh


@computes("gradients/G9")
def identity() -> Mapping[str, Value]:
    """At A = I: whether autograd through eigh gives NaN, and the exact gradient less f'(1)G, for √A and its inverse."""
    A, G = torch.eye(8, dtype=torch.float64), sym(gaussian(8, 8))
    autograd, exact = [], []
    for root, p in EXPONENT.items():
        for decompose in (torch_eigh, plain_eigh):
            autograd.append(bool(gradient(composed(decompose, p), A, G).isnan().any()))
        exact.append(float((gradient(ROOTS[root], A, G) - p * G).abs().max()))
    return {"autograd_nan": autograd, "exact": exact}


@computes("gradients/G10")
def released_signs() -> Mapping[str, Value]:
    """At a tie, off the diagonal: the gradient of A^p by the released sign rule over the true one, and by the skew one.

    The rule is K̂_ij = K̂_ji = +(K + 1)/λ. One number for each K = 9, 100 and p = −1/2, 1/2, 1/4, and their spread.
    """
    A, G = 0.25 * torch.eye(6, dtype=torch.float64), sym(gaussian(6, 6))
    off = ~torch.eye(6, dtype=torch.bool)

    def ratios(p: float, method: sg.Method) -> Tensor:
        true, got = (gradient(lambda M, m=m: sg.matrix_power(M, p, method=m), A, G) for m in (sg.Exact(), method))  # type: ignore[misc]
        return (got / true)[off]

    released, skew, spread = [], [], []
    for degree in (9, 100):
        for p in (-0.5, 0.5, 0.25):
            found = ratios(p, sg.Taylor(degree=degree, faithful=True))
            released.append(float(found.mean()))
            spread.append(float((found / found.mean() - 1).abs().max()))
            skew.append(float(ratios(p, sg.Taylor(degree=degree)).abs().max()))
    return {"released": released, "spread": max(spread), "skew": skew}


RELEASED = {
    "taylor_9": sg.Taylor(),
    "taylor_9_released": sg.Taylor(faithful=True),
    "taylor_100_released": sg.Taylor(degree=100, faithful=True),
    "trunc_released": sg.Trunc(faithful=True),
    "exact": sg.Exact(),
}


@computes("gradients/exact-ties")
def multiplicity_eight() -> Mapping[str, Value]:
    """Eight dyadic eigenvalues of multiplicity eight: the error for A^(-1/2), and the mean ratio to the truth at ties.

    The matrix is diagonal, so every method finds the eigenpairs without rounding.
    """
    w = (2.0 ** torch.arange(-7, 1, dtype=torch.float64)).repeat_interleave(8)
    G, s = sym(gaussian(64, 64)), w.sqrt()
    truth = -G / (s * s[:, None] * (s + s[:, None]))
    tied = (w == w[:, None]) & ~torch.eye(64, dtype=torch.bool)
    values: dict[str, Value] = {}
    for name, rule in RELEASED.items():
        g = gradient(root_by(rule), torch.diag(w), G)
        values[name] = relative_error(g, truth)
        ratio = (g / truth)[tied] / (w.expand(64, 64)[tied] if name == "trunc_released" else 1)
        values[f"{name}_ratio"] = [float(ratio.min()), float(ratio.max())]
    return values
