"""Singular value decompositions of long or wide matrices with up to eight columns or rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import launching, small_svd

__all__ = ["tall_svd"]

WARPS = 4  # more would leave AMD processors too few registers per thread


def plan(m: int, n: int, threads: int) -> dict[str, Any]:
    """Return what the compiler knows about calls for m × n matrices, m > 8 ≥ n: at most one row per thread."""
    warps = min(WARPS, 1 << (-(-m // threads) - 1).bit_length())
    return {"N": n, "ROWS": threads * warps, "num_warps": warps}


def tall_svd(M: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return U (*, m, k), descending S (*, k), Vh (*, k, n), k = min(m, n), and a boolean (*,): the matrix failed.

    Three launches: the QR decomposition of M or its transpose, the decomposition of the triangular factor, and the
    product. It is as accurate as :func:`spectralgrad.solvers.devices.small_svd.svd`, and fails in the same cases.

    Args:
        M: contiguous float32 or float64 matrices (*, m, n), max(m, n) > 8 ≥ min(m, n) ≥ 1.
    """
    rows, columns = M.shape[-2:]
    m, n = max(rows, columns), min(rows, columns)
    batch, count = M.shape[:-2], launching.batched(M.shape)
    known = plan(m, n, launching.warp())
    blocks = -(-m // known["ROWS"])
    Q, tau = torch.empty_like(M), M.new_empty(count, blocks, n)
    R, e = M.new_empty(*batch, n, n), torch.empty(count, dtype=torch.int32, device=M.device)
    strides = (n, 1) if rows >= columns else (1, m)
    launching.run(
        "tall.factor", count, M, Q, tau, R, e, m, blocks, *strides, *strides, **known, **launching.limits(M.dtype)
    )
    U, S, Vh, failed = small_svd.svd(R)
    launching.run("tall.form", count, Q, tau, U, S, e, m, blocks, *strides, **known)
    return (Q, S, Vh, failed) if rows >= columns else (Vh.mT.contiguous(), S, Q, failed)
