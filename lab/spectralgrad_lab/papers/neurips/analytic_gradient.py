"""The analytic gradient as the paper prints it (Eq. 9, 10, 18–33), and the Rayleigh quotient."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

from ..inputs import KEEP_ALL, eq2, gaussian, gradient, sym, vector_gradient
from ..registry import computes
from ..value_conditions import Value
from .power_iteration import SPREAD, leading_only


def descending(A: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors in the paper's order, the largest first."""
    w, V = sg.eigh(A)
    return w.flip(-1), V.flip(-1)


def can_be_multiplied(*factors: Tensor) -> bool:
    """Whether the shapes of the factors fit together in a matrix product."""
    return all(left.shape[-1] == right.shape[0] for left, right in pairwise(factors))


def eq33(w: Tensor, V: Tensor, g: Tensor) -> Tensor:
    """Eq. 10 and 33: Σ_(i≥2) v_i v_iᵀ/(λ1 − λi) · dL/dv1 · v1ᵀ, for descending eigenvalues."""
    return torch.outer((V[:, 1:] / (w[0] - w[1:])) @ V[:, 1:].mT @ g, V[:, 0])


@computes("neurips/B4")
def equation_9() -> Mapping[str, Value]:
    """Eq. 9 with v1 alone in place of V: the shapes, its only readable form, and the formula of Eq. 10."""
    A, g = with_spectrum(SPREAD), gaussian(6, seed=1)
    w, V = descending(A)
    v, K = V[:, :1], sg.Analytic().gaps(w)
    truth = vector_gradient(A, "svd", leading_only(g))
    with_k11 = v @ (K[:1, :1] * (v.mT @ g)) @ v.mT
    return {
        "shapes_fit": can_be_multiplied(v, K.mT * (v.mT @ g), v.mT),
        "with_k11": relative_error(with_k11, truth),
        "eq_10": relative_error(sym(eq33(w, V, g)), truth),
    }


@computes("neurips/B5")
def rayleigh_quotient() -> Mapping[str, Value]:
    """The derivative of vᵀMv/vᵀv at an eigenvector, in v and in M; and of λ1 through the library's eigh."""
    A = with_spectrum(SPREAD)
    v = sg.eigh(A).eigenvectors[:, -1]
    methods = (sg.Analytic(), sg.SVDPI(unrolled=True, **KEEP_ALL))
    through = [gradient(partial(_leading_eigenvalue, method=method), A) for method in methods]
    return {
        "in_vector": float(gradient(lambda u: u @ A @ u / (u @ u), v).norm()),
        "in_matrix": float(gradient(lambda M: v @ M @ v / (v @ v), A).norm()),
        "through_matrix": [relative_error(g, torch.outer(v, v)) for g in through],
    }


def _leading_eigenvalue(M: Tensor, method: sg.Method) -> Tensor:
    return sg.eigh(M, method=method).eigenvalues[-1]


@computes("neurips/B11")
def projectors() -> Mapping[str, Value]:
    """Eq. 18–21: (I − vvᵀ)M(I − vvᵀ) − M(I − vvᵀ), and the same with two factors M, for every eigenvector."""
    A, identity = with_spectrum(SPREAD), torch.eye(6, dtype=torch.float64)
    once, twice = [], []
    for k in range(6):
        P = identity - (sg.spectral_projector(A, k + 1) - sg.spectral_projector(A, k))
        once.append(float((P @ A @ P - A @ P).norm()))
        twice.append(float((P @ A @ P @ A @ P - A @ A @ P).norm()))
    return {"once": max(once), "twice": max(twice)}


@computes("neurips/B12")
def appendix() -> Mapping[str, Value]:
    """Eq. 23 and 33 against autograd; both sides of Eq. 29, the factors of Eq. 31, and VᵀΛV of Algorithm 1."""
    A, H = with_spectrum(SPREAD), gaussian(6, 6, seed=2)
    w, V = descending(A)
    K, coupling = sg.Analytic().gaps(w), V.mT @ H
    right = torch.tensor(  # the entries that Eq. 29 prints
        [[0.0 if i == j else float(coupling[i, j] / (w[j] - w[i])) for j in range(6)] for i in range(6)],
        dtype=torch.float64,
    )
    columns = [(V / torch.where(w == w[i], torch.inf, w[i] - w)) @ V.mT @ H[:, i] for i in range(6)]
    eq31 = torch.stack([torch.outer(column, V[:, i]) for i, column in enumerate(columns)]).sum(0)
    g = gaussian(6, seed=1)
    return {
        "eq_23": relative_error(sym(eq2(V, K, H)), vector_gradient(A, "svd", H.flip(-1))),
        "eq_29": relative_error(K * coupling, right),
        "eq_29_transposed": relative_error(K.mT * coupling, right),
        "eq_31_shapes_fit": can_be_multiplied(columns[0][:, None], V[:, :1]),
        "eq_31_transposed": relative_error(eq31, eq2(V, K, H)),
        "eq_33": relative_error(sym(eq33(w, V, g)), vector_gradient(A, "svd", leading_only(g))),
        "algorithm_1": relative_error(V.mT @ torch.diag(w) @ V, A),
        "algorithm_1_transposed": relative_error(V @ torch.diag(w) @ V.mT, A),
    }
