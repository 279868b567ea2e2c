"""Power iteration: its iterates, its gradient, the series it amounts to, and the bound on it (Eq. 2–13)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

from ..inputs import KEEP_ALL, gaussian, gradient, pair_gap, power_iteration_gradient, sym, uniform, vector_gradient
from ..registry import computes
from ..value_conditions import Value

SPREAD = (0.1, 0.3, 0.5, 0.65, 0.8, 1.0)


def leading_only(g: Tensor) -> Tensor:
    """A cotangent of all eigenvectors that is zero except at the leading one."""
    H = torch.zeros(*g.shape, g.shape[-1], dtype=torch.float64)
    H[..., -1] = g
    return H


def iterates(M: Tensor, v: Tensor, count: int) -> list[Tensor]:
    """Eq. 2: v, Mv/‖Mv‖ and so on, ``count`` steps."""
    found = [v]
    for _ in range(count):
        found.append(M @ found[-1] / (M @ found[-1]).norm())
    return found


def last_iterate(M: Tensor, v: Tensor, count: int) -> Tensor:
    """Eq. 2: the vector after ``count`` steps."""
    return iterates(M, v, count)[-1]


@computes("neurips/B1")
def gradient_of_the_iterates() -> Mapping[str, Value]:
    """Eq. 2 against the library's power iteration; Eq. 3 against autograd and a difference quotient."""
    A, g, Z, step = with_spectrum(SPREAD), gaussian(6, seed=1), sym(gaussian(6, 6, seed=2)), 1e-6

    def leading(M: Tensor, steps: int) -> Tensor:
        return sg.eigh(M, method=sg.PI(iterations=steps, **KEEP_ALL)).eigenvectors[:, -1]

    ours = [leading(A, k) for k in range(5)]
    deviation = max(float((after - A @ v / (A @ v).norm()).norm()) for v, after in pairwise(ours))
    slope = (leading(A + step * Z, 4) - leading(A - step * Z, 4)) @ g / (2 * step)
    quotient = float((power_iteration_gradient(A, ours, g) * Z).sum() / slope) - 1
    start = torch.nn.functional.normalize(gaussian(6, seed=3), dim=0)
    autograd = []
    for k in (1, 3, 19):
        by_hand = power_iteration_gradient(A, iterates(A, start, k), g)
        autograd.append(relative_error(by_hand, gradient(partial(last_iterate, v=start, count=k), A, g)))
    return {"iterates": deviation, "autograd": autograd, "difference_quotient": abs(quotient)}


@computes("neurips/B2")
def series() -> Mapping[str, Value]:
    """Eq. 4: Σ_(k<K) M^k(I − vvᵀ)/‖Mv‖^(k+1) against Algorithm 1 differentiated step by step from the exact v."""
    A, g = with_spectrum(SPREAD), gaussian(6, seed=1)
    v = sg.eigh(A).eigenvectors[:, -1]
    size, P = (A @ v).norm(), torch.eye(6, dtype=torch.float64) - torch.outer(v, v)
    errors = []
    for K in (1, 3, 10):
        terms = sum(sg.matrix_power(A, k) @ P / size ** (k + 1) for k in range(K))
        unrolled = sg.SVDPI(iterations=K, unrolled=True, **KEEP_ALL)
        errors.append(relative_error(vector_gradient(A, unrolled, leading_only(g)), sym(torch.outer(terms @ g, v))))
    return {"errors": errors}


@computes("neurips/B3")
def limit() -> Mapping[str, Value]:
    """Eq. 5–8: the distance to the analytic gradient at λ2/λ1 = 0.75, and the partial sums where the ratio is 1."""
    A, H = with_spectrum((0.1, 0.2, 0.4, 0.5, 0.75, 1.0)), leading_only(gaussian(6, seed=1))
    truth = vector_gradient(A, "svd", H)
    errors = [relative_error(vector_gradient(A, sg.SVDPI(iterations=k), H), truth) for k in (5, 20, 100)]
    tied = sg.eigh(torch.eye(2, dtype=torch.float64)).eigenvalues
    nearly = 1 - 2.0**-50
    return {
        "errors": errors,
        "share_at_ratio_1": float(1 - (tied[0] / tied[1]) ** 10**6),
        "sums_near_ratio_1": [pair_gap(sg.SVDPI(iterations=10**k), nearly) for k in (2, 4, 6)],
    }


@computes("neurips/B6")
def bound() -> Mapping[str, Value]:
    """Eq. 12–13: ‖dL/dM‖ over nK/ε·‖dL/dv‖ and over K/λ1·‖dL/dv‖, largest of 300 matrices for K = 1, 9, 19.

    The symmetrised gradient of ⟨v, g⟩ is the one of Eq. 4, u vᵀ with u ⟂ v, divided by √2.
    """
    eps = 0.01
    w, g = uniform(300, 6, low=eps).sort(-1).values, gaussian(300, 6, seed=1)
    printed, sharp, gaps = [], [], []
    for K in (1, 9, 19):
        method = sg.SVDPI(iterations=K, **KEEP_ALL)
        size = torch.linalg.matrix_norm(vector_gradient(torch.diag_embed(w), method, leading_only(g)))
        share = 2**0.5 * size / g.norm(dim=-1) / K
        printed.append(float((share * eps / 6).max()))
        sharp.append(float((share * w[:, -1]).max()))
        gaps.append(float((method.gaps(w).abs().amax((-2, -1)) / method.bound(w)).max()))
    return {"printed": printed, "sharp": sharp, "library_bound": gaps}


@computes("neurips/last-eigenpair")
def truncation() -> Mapping[str, Value]:
    """Algorithm 1's loop on the eigenvalues 4, 3, 2, 1, far above ε and exact: only its third condition matters."""
    w = torch.tensor([4.0, 3.0, 2.0, 1.0], dtype=torch.float64)
    energy = w.cumsum(0) / w.sum()
    kept = int((energy < 1 - 0.0001).sum())
    root = sg.matrix_inv_sqrt(torch.diag(w), method="svd-pi")
    return {"kept": kept, "discarded": float(1 - energy[kept - 1]), "library": root.diagonal().tolist()}
