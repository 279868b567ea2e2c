"""All eigenvalues in one tight cluster, as in features that are nearly white."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

import spectralgrad as sg
from spectralgrad.testing import Reference, with_spectrum

from ..inputs import gaussian, sym
from ..registry import computes
from ..value_conditions import Value
from .compared import composed, error, root_by, torch_eigh
from .refined import true_gradient

COLUMNS = {
    "autograd": composed(torch_eigh),
    "taylor_9": root_by(sg.Taylor()),
    "taylor_9_released": root_by(sg.Taylor(faithful=True)),
    "taylor_100": root_by(sg.Taylor(degree=100)),
    "taylor_100_released": root_by(sg.Taylor(degree=100, faithful=True)),
    "pade_released": root_by(sg.Pade(faithful=True)),
    "clip": root_by(sg.Clip()),
    "trunc_released": root_by(sg.Trunc(faithful=True)),
    "pade": root_by(sg.Pade()),
    "exact": root_by(sg.Exact()),
}
CASES = (
    (torch.float64, 8, 1e-2),
    (torch.float64, 8, 1e-10),
    (torch.float64, 64, 1e-4),
    (torch.float64, 64, 1e-14),
    (torch.float32, 64, 1e-6),
)


def cluster(dtype: torch.dtype, size: int, spread: float) -> dict[str, float]:
    """The error of every column for A^(-1/2), eigenvalues evenly spaced from 1 − spread to 1, and the computed ties."""
    A = with_spectrum(1 - spread * np.linspace(0, 1, size), dtype=dtype)
    G = sym(gaussian(size, size, dtype=dtype))
    truth = true_gradient(A, "inv_sqrt", G)
    errors = {name: error(root, A, G, truth) for name, root in COLUMNS.items()}
    return {**errors, "ties": int((sg.eigh(A).eigenvalues.diff() == 0).sum())}


@computes("gradients/tight-cluster")
def table() -> Mapping[str, Value]:
    """The errors in every case and column; at spread 1e-10 also the share of the gradient that is off the diagonal."""
    rows = [cluster(*case) for case in CASES]
    values: dict[str, Value] = {name: [row[name] for row in rows] for name in rows[0]}
    off = _off_the_diagonal()
    deviation = max(abs(rows[1][name] - off) for name in ("taylor_9", "taylor_100", "clip"))
    return {**values, "off_the_diagonal": off, "deviation": deviation}


def _off_the_diagonal() -> float:
    """How much of the true gradient is off the diagonal in the eigenbasis: what a rule loses that keeps no pair."""
    A, G = with_spectrum(1 - 1e-10 * np.linspace(0, 1, 8)), sym(gaussian(8, 8))
    V = sg.eigh(A).eigenvectors
    T = V.mT @ Reference(A).gradient("inv_sqrt", G) @ V
    return float((T - torch.diag(T.diagonal())).norm() / T.norm())
