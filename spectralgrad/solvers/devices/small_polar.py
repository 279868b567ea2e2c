"""Polar factors and nearest rotations of square matrices with up to four rows, and their derivative."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import launching, small_svd

__all__ = ["polar", "polar_derivative"]


def plan(n: int, dtype: torch.dtype, threads: int, special: bool) -> dict[str, Any]:
    """Return what the compiler knows about a call."""
    known = small_svd.plan(n, n, dtype, threads)
    return {**{name: known[name] for name in ("N", "M", "BAR", "TINY", "LARGEST", "SWEEPS")}, "SPECIAL": special}


def derivative_plan(n: int, threads: int) -> dict[str, Any]:
    """Return what the compiler knows about a call of the derivative."""
    return {"N": n, "M": threads}


def polar(M: Tensor, special: bool, zero: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return Q (*, n, n), h (*, n), Vh (*, n, n) with M = Q V diag(h) Vh, and a boolean (*,): the matrix failed.

    Q is the polar factor, orthogonal at any rank, or with ``special`` the nearest rotation, where the last of h may be
    negative. The results of a matrix that failed are NaN, as in :func:`spectralgrad.solvers.devices.svd`.

    Args:
        M: contiguous float32 or float64 matrices (*, n, n), 1 ≤ n ≤ 4.
        special: return rotations.
        zero: eigenvalues up to this multiple of the largest are zero, in single precision, and so is the sum of the
            last two.
    """
    n, count = M.shape[-1], launching.batched(M.shape)
    Q, h, Vh, failed = torch.empty_like(M), M.new_empty(M.shape[:-1]), torch.empty_like(M), launching.flags(M)
    known = plan(n, M.dtype, launching.warp(), special)
    launching.run("polar.polar", -(-count // known["M"]), M, Q, h, Vh, failed, count, zero, **known)
    return Q, h, Vh, failed.view(torch.bool)


def polar_derivative(Q: Tensor, h: Tensor, Vh: Tensor, G: Tensor) -> Tensor:
    """Return the derivative (*, n, n) of Q in the direction G, which is self-adjoint.

    Pairs whose eigenvalues have a sum that is not positive contribute nothing.

    Args:
        Q, h, Vh: contiguous results of :func:`polar`.
        G: the direction (*, n, n), contiguous.
    """
    n, count = Q.shape[-1], launching.batched(Q.shape)
    X, known = torch.empty_like(G), derivative_plan(n, launching.warp())
    launching.run("polar.derivative", -(-count // known["M"]), Q, h, Vh, G, X, count, **known)
    return X
