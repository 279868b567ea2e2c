"""Singular value decompositions of matrices with up to eight rows and columns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import launching

__all__ = ["svd"]

SWEEPS = 30


def plan(m: int, n: int, dtype: torch.dtype, threads: int) -> dict[str, Any]:
    """Return what the compiler knows about a call for m × n matrices, m ≥ n.

    ``BAR`` bounds the square of the cosine between two columns: ε, or √m ε/2 for more than four rows, the error of the
    product itself.
    """
    rows = launching.rows(m)
    size = {"N": n, "M": threads // rows, "ROWS": rows, "BLOCKS": -(-m // rows), "V_BLOCKS": -(-n // rows)}
    bar = torch.finfo(dtype).eps ** 2 * (m / 4 if m > 4 else 1.0)
    return {**size, **launching.limits(dtype), "BAR": bar, "SWEEPS": SWEEPS}


def svd(M: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return U (*, m, k), descending S (*, k), Vh (*, k, n), k = min(m, n), and a boolean (*,): the matrix failed.

    U and Vh have orthonormal columns and rows for matrices of any rank. The results of a matrix that failed, because it
    is not finite or did not converge, are NaN. No result depends on the other matrices, and nothing is read back from
    the device.

    Args:
        M: contiguous float32 or float64 matrices (*, m, n), 1 ≤ m, n ≤ 8.
    """
    rows, columns = M.shape[-2:]
    m, n = max(rows, columns), min(rows, columns)
    batch, count = M.shape[:-2], launching.batched(M.shape)
    U, S, Vh = M.new_empty(*batch, rows, n), M.new_empty(*batch, n), M.new_empty(*batch, n, columns)
    failed, known = launching.flags(M), plan(m, n, M.dtype, launching.warp())
    # the strides of M or its transpose, of its left vectors, and of its right vectors, whose rows are stored
    left, right, strides = (U, Vh, (n, 1, n, 1, 1, n)) if rows >= columns else (Vh, U, (1, m, 1, m, n, 1))
    sizes = count, m, *strides
    launching.run("svd.svd", -(-count // known["M"]), M, left, S, right, failed, *sizes, **known)
    return U, S, Vh, failed.view(torch.bool)
