"""Matrices, random draws and gradients that the items share."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import Reference, paired_spectrum, with_spectrum

EPS = torch.finfo(torch.float64).eps
SPECTRUM = (0.05, 0.19, 0.2, 0.4, 0.69, 0.7, 0.95, 1.0)
"""Eight eigenvalues with two close pairs."""
KEEP_ALL: dict[str, Any] = {"eps": 0.0, "energy": 2.0, "tolerance": float("inf")}
"""Settings of SVD-PI that switch the stopping rules of Algorithm 1 off."""


def gaussian(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers; the same seed gives the same numbers in every type."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def uniform(*shape: int, low: float = 0.0, high: float = 1.0, seed: int = 0) -> Tensor:
    """Uniform numbers between ``low`` and ``high``."""
    draw = torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return low + (high - low) * draw


def sym(M: Tensor) -> Tensor:
    """The symmetric part."""
    return (M + M.mT) / 2


def tensor(*values: float) -> Tensor:
    """A float64 vector."""
    return torch.tensor(values, dtype=torch.float64)


def gradient(f: Callable[[Tensor], Tensor], A: Tensor, G: Tensor | None = None) -> Tensor:
    """The gradient of ⟨f(A), G⟩, or of the scalar f(A)."""
    A = A.detach().clone().requires_grad_()
    return torch.autograd.grad(f(A), A, G)[0]


def vector_gradient(A: Tensor, method: str | sg.Method, H: Tensor) -> Tensor:
    """The gradient of ⟨V, H⟩ for the eigenvectors V, by a method."""
    return gradient(lambda M: sg.eigh(M, method=method).eigenvectors, A, H)


def eq2(V: Tensor, K: Tensor, gV: Tensor, gw: Tensor | None = None) -> Tensor:
    """TPAMI Eq. 2 as printed, not symmetrised."""
    inner = K.mT * (V.mT @ gV)
    return V @ (inner if gw is None else inner + torch.diag_embed(gw)) @ V.mT


def pair_gap(rule: sg.GapMethod, x: float) -> float:
    """A rule's approximation of 1/(1 − x), for the eigenvalues 1 and x ≤ 1."""
    return float(rule.gaps(tensor(x, 1.0))[1, 0])


@lru_cache(maxsize=64)
def paired(condition: float, gap: float) -> tuple[Tensor, Reference, Tensor]:
    """The 8×8 matrix of the accuracy table with its 50-digit reference, and a symmetric cotangent."""
    A = with_spectrum(paired_spectrum(8, condition, gap))
    return A, Reference(A), sym(gaussian(8, 8, seed=1))


def power_iteration_gradient(M: Tensor, iterates: list[Tensor], g: Tensor) -> Tensor:
    """NeurIPS Eq. 3 (TPAMI Eq. 17) as printed: the gradient of ⟨v_K, g⟩ in M for iterates v_0 … v_K."""
    total = torch.zeros_like(M)
    for v, after in zip(iterates[-2::-1], iterates[:0:-1], strict=True):
        step = (g - after * (after @ g)) / (M @ v).norm()
        total, g = total + torch.outer(step, v), M @ step
    return total
