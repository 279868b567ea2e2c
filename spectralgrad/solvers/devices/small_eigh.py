"""Eigendecompositions of symmetric matrices with up to eight rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...native.calls import UNCHECKED
from . import launching

__all__ = ["eigh"]

SWEEPS = 24  # quadratic convergence needs about 4 for three and 7 for eight rows


def plan(d: int, dtype: torch.dtype, threads: int, both: bool) -> dict[str, Any]:
    """Return what the compiler knows about a call; ``both`` triangles may be read."""
    return {
        **launching.square(d, threads),
        **launching.limits(dtype),
        "BAR": torch.finfo(dtype).eps / 16,
        "SWEEPS": SWEEPS,
        "BOTH": both,
    }


def eigh(A: Tensor, asymmetry: float = UNCHECKED) -> tuple[Tensor, Tensor, Tensor]:
    """Return ascending eigenvalues (*, d), eigenvectors (*, d, d), and a boolean (*,) for each matrix: it failed.

    The results of a matrix that failed, because it is not finite, not symmetric or did not converge, are NaN. No result
    depends on the other matrices, and nothing is read back from the device.

    Args:
        A: contiguous float32 or float64 matrices (*, d, d), 2 ≤ d ≤ 8; the lower triangle is decomposed.
        asymmetry: multiple of the largest entry by which the upper triangle may differ from it, in single precision.
    """
    d, count = A.shape[-1], launching.batched(A.shape)
    w, V, failed = A.new_empty(A.shape[:-1]), torch.empty_like(A), launching.flags(A)
    known = plan(d, A.dtype, launching.warp(), asymmetry != UNCHECKED)
    launching.run("eigh.eigh", -(-count // known["M"]), A, w, V, failed, count, asymmetry, **known)
    return w, V, failed.view(torch.bool)
