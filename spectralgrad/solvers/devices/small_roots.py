"""Roots and inverse roots of positive semi-definite matrices with up to eight rows, and their derivatives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...native.calls import UNCHECKED
from . import launching, small_eigh

__all__ = ["FAILED", "INDEFINITE", "root", "root_derivative"]

FAILED, INDEFINITE = 1, 2


def plan(d: int, dtype: torch.dtype, threads: int, both: bool, inverse: bool) -> dict[str, Any]:
    """Return what the compiler knows about a call of the root."""
    return {**small_eigh.plan(d, dtype, threads, both), "INVERSE": inverse, "NORMAL": torch.finfo(dtype).tiny}


def derivative_plan(d: int, threads: int, inverse: bool) -> dict[str, Any]:
    """Return what the compiler knows about a call of the derivative."""
    return {**launching.square(d, threads), "INVERSE": inverse}


def root(
    A: Tensor, inverse: bool, zero: float, negative: float, asymmetry: float = UNCHECKED
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return A^(1/2) or A^(-1/2) on the range (*, d, d), √λ (*, d) with zeros off it, V, and a state (*,) as int8.

    The state is 0, ``FAILED`` where A is not finite or not symmetric or the iteration did not converge, and all results
    are NaN, or ``INDEFINITE`` where an eigenvalue is too negative, and the results belong to the positive part.
    Nothing is read back from the device. The root is finite and accurate at any scale of A, also where the norm
    overflows.

    Args:
        A: contiguous float32 or float64 matrices (*, d, d), 2 ≤ d ≤ 8; the lower triangle is decomposed.
        inverse: return the inverse root.
        zero: multiple of the norm up to which eigenvalues count as zero, in single precision.
        negative: multiple of the norm up to which negative eigenvalues do, in single precision; infinite for any.
        asymmetry: as in :func:`spectralgrad.solvers.devices.eigh`.
    """
    d, count = A.shape[-1], launching.batched(A.shape)
    S, s, V, state = torch.empty_like(A), A.new_empty(A.shape[:-1]), torch.empty_like(A), launching.flags(A)
    known = plan(d, A.dtype, launching.warp(), asymmetry != UNCHECKED, inverse)
    limits = zero, negative, asymmetry
    launching.run("roots.root", -(-count // known["M"]), A, S, s, V, state, count, *limits, **known)
    return S, s, V, state


def root_derivative(V: Tensor, s: Tensor, G: Tensor, inverse: bool) -> Tensor:
    """Return the derivative (*, d, d) of a root in the direction of the symmetric part of G; it is symmetric.

    It is its own adjoint, hence also the gradient with respect to A if G is that with respect to the root.

    Args:
        V, s: contiguous results of :func:`root`.
        G: the direction (*, d, d), contiguous.
        inverse: differentiate the inverse root.
    """
    d, count = V.shape[-1], launching.batched(V.shape)
    X, known = torch.empty_like(G), derivative_plan(d, launching.warp(), inverse)
    launching.run("roots.derivative", -(-count // known["M"]), V, s, G, X, count, **known)
    return X
