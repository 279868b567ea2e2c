"""The gradients that are compared: roots by each method, and the error of each against the true gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import relative_error

from ..inputs import gradient, sym

Root = Callable[[Tensor], Tensor]
ROOTS = {"sqrt": sg.matrix_sqrt, "inv_sqrt": sg.matrix_inv_sqrt}
EXPONENT = {"sqrt": 0.5, "inv_sqrt": -0.5}


def root_by(method: sg.Method, root: str = "inv_sqrt") -> Root:
    """A root of a matrix whose gradient is formed by a method."""
    return partial(ROOTS[root], method=method)


def composed(decompose: Callable[[Tensor], tuple[Tensor, Tensor]], p: float = -0.5) -> Root:
    """A^p composed from eigenvalues and eigenvectors, so that autograd meets every gap between eigenvalues."""

    def power(A: Tensor) -> Tensor:
        w, V = decompose(A)
        return (V * w**p) @ V.mT

    return power


def torch_eigh(A: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors with torch's gradient."""
    w, V = torch.linalg.eigh(A)
    return w, V


def plain_eigh(A: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors with the library's textbook gradient."""
    w, V = sg.eigh(A, method="svd")
    return w, V


def torch_svd(A: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of a positive definite matrix by torch's singular value decomposition."""
    _, S, Vh = torch.linalg.svd(A)
    return S, Vh.mT


def plain_svd(A: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of a positive definite matrix by the library's singular value decomposition."""
    _, S, Vh = sg.svd(A, method="svd")
    return S, Vh.mT


TABLE: Mapping[str, Root] = {
    "autograd": composed(torch_eigh),
    "taylor_9": root_by(sg.Taylor()),
    "taylor_100": root_by(sg.Taylor(degree=100)),
    "plain": root_by(sg.Analytic()),
    "clip": root_by(sg.Clip()),
    "trunc": root_by(sg.Trunc()),
    "exact": root_by(sg.Exact()),
}
"""The columns of the accuracy table: A^(-1/2) by plain autograd, five rules, and divided differences."""


def error(root: Root, A: Tensor, G: Tensor, truth: Tensor) -> float:
    """Relative error of the symmetrised gradient; NaN if it is not finite."""
    g = sym(gradient(root, A, G))
    return relative_error(g, truth) if bool(g.isfinite().all()) else float("nan")
