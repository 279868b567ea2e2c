"""The Newton–Schulz iteration and its gradient (Eq. 7–10, SVD-Newton)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

from ..inputs import SPECTRUM, gaussian, gradient, sym
from ..registry import computes
from ..value_conditions import Value

ITERATIONS = (1, 3, 5, 10, 20)


def coupled(A: Tensor, steps: int) -> Tensor:
    """Y_N of the coupled iteration (Eq. 7) from Y = A and Z = I, without any scaling."""
    identity = torch.eye(len(A), dtype=A.dtype)
    Y, Z = A, identity
    for _ in range(steps):
        T = (3 * identity - Z @ Y) / 2
        Y, Z = Y @ T, T @ Z
    return Y


@computes("iccv/P4")
def convergence() -> Mapping[str, Value]:
    """Error of our trace-normalised iteration after 1, 3, 5, 10 and 20 steps at condition number 100."""
    P = with_spectrum(np.logspace(-2, 0, 6))
    rules = [sg.NewtonSchulz(steps=steps) for steps in ITERATIONS]
    errors = [relative_error(sg.matrix_sqrt(P, method=rule), sg.matrix_sqrt(P)) for rule in rules]
    inverse = relative_error(sg.matrix_inv_sqrt(P, method=rules[-1]), sg.matrix_inv_sqrt(P))
    return {"errors": errors, "decreasing": errors == sorted(errors, reverse=True), "inverse": inverse}


@computes("iccv/P5")
def beyond_the_condition() -> Mapping[str, Value]:
    """Where 60 steps of Eq. 7 lead from diag(a, 1), unscaled, for a = 2.9 and 3.1."""
    starts = (2.9, 3.1)
    matrices = [torch.diag(torch.tensor([a, 1.0], dtype=torch.float64)) for a in starts]
    distances = [float(torch.linalg.matrix_norm(A - torch.eye(2, dtype=A.dtype), 2)) for A in matrices]
    limits = [coupled(A, 60) for A in matrices]
    return {
        "distance": distances,
        "limit": [float(Y[0, 0]) for Y in limits],
        "converges": bool((limits[0] @ limits[0] - matrices[0]).norm() < 1e-12),
    }


@computes("iccv/P6")
def through_the_scaling() -> Mapping[str, Value]:
    """Eq. 10, with dl/dA from dl/dY = √tr(P)·dl/dQ, against the gradient of our Newton–Schulz root."""
    P, G, identity = with_spectrum(SPECTRUM), sym(gaussian(8, 8)), torch.eye(8, dtype=torch.float64)
    trace = P.trace()

    def error(steps: int) -> float:
        dA = gradient(lambda A: coupled(A, steps), P / trace, trace.sqrt() * G)
        first = -(dA * P).sum() / trace**2 * identity + dA / trace
        eq10 = first + (G * coupled(P / trace, steps)).sum() / (2 * trace.sqrt()) * identity
        ours = gradient(lambda M: sg.matrix_sqrt(M, method=sg.NewtonSchulz(steps=steps)), P, G)
        return relative_error(ours, sym(eq10))

    return {"errors": [error(steps) for steps in (3, 5, 10)]}


@computes("iccv/P38")
def svd_newton() -> Mapping[str, Value]:
    """Error of SVD-Newton's gradient of the root, by condition number and by number of iterations."""
    G = sym(gaussian(32, 32))

    def errors(condition: float, steps: int) -> tuple[float, float]:
        A, rule = with_spectrum(np.logspace(0, -np.log10(condition), 32)), sg.SVDNewton(steps=steps)
        g = gradient(lambda M: sg.matrix_sqrt(M, method=rule), A, G)
        forward = relative_error(sg.matrix_sqrt(A, method=rule), sg.matrix_sqrt(A))
        return relative_error(g, gradient(sg.matrix_sqrt, A, G)), forward

    ten = [errors(condition, 10) for condition in (1e1, 1e2, 1e4, 1e6, 1e8)]
    more = [errors(1e8, steps) for steps in (20, 40)]
    return {
        "ten": [backward for backward, _ in ten],
        "more": [backward for backward, _ in more],
        "forward": max(forward for _, forward in ten + more),
    }
