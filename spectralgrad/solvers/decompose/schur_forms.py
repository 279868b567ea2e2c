"""Schur forms and Sylvester equations of triangular matrices by LAPACK, through scipy, on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...dispatch import status
from ...errors import ArgumentError, NonFiniteError, batch_positions


def schur(A: Tensor, operation: str) -> tuple[Tensor, Tensor]:
    """Return T and unitary U with A = U T Uᴴ; T is upper triangular, for real A with blocks of two on the diagonal."""
    if status.accelerated(A):
        raise ArgumentError(f"{operation}: without hermitian=True it runs on a CPU, got a tensor on {A.device}")
    bad = ~torch.isfinite(A).flatten(-2).all(-1)
    if bool(bad.any()):
        raise NonFiniteError(batch_positions(bad), A.shape[:-2], operation)
    if not A.numel():
        return A.clone(), A.clone()
    forms = [_linalg(operation).schur(a.numpy()) for a in A.detach().resolve_conj().reshape(-1, *A.shape[-2:])]
    T, U = (torch.from_numpy(np.stack(parts)).to(A.dtype).reshape(A.shape) for parts in zip(*forms, strict=True))
    return T, U


def triangular_sylvester(T: Tensor, S: Tensor, F: Tensor, operation: str, adjoint: bool) -> Tensor:
    """Solve TY + YS = F, or TᴴY + YSᴴ = F, for Schur forms T and S.

    Raises:
        ArgumentError: the equation is singular to rounding.
    """
    if not F.numel():
        return F.clone()
    (solve,) = _linalg(operation).get_lapack_funcs(("trsyl",), dtype=F.detach().new_empty(0).numpy().dtype)
    trans = "C" if adjoint else "N"
    found, singular = [], torch.zeros(F.shape[:-2], dtype=torch.bool)
    flat = singular.view(-1)
    stacks = (x.detach().resolve_conj().reshape(-1, *x.shape[-2:]).numpy() for x in (T, S, F))
    for k, (t, s, f) in enumerate(zip(*stacks, strict=True)):
        y, scale, info = solve(t, s, f, trana=trans, tranb=trans)
        found.append(y / scale)
        flat[k] = info != 0
    for position in batch_positions(singular)[:1]:
        where = f" in batch position {position}" if position else ""
        raise ArgumentError(
            f"{operation}: expected a regular equation, got an eigenvalue of A whose sum with one of B is zero to "
            f"rounding{where}. Hermitian matrices are solved on the range with hermitian=True."
        )
    return torch.from_numpy(np.stack(found)).to(F.dtype).reshape(F.shape)


def _linalg(operation: str) -> Any:
    try:
        from scipy import linalg  # type: ignore[import-untyped]
    except ImportError:
        raise ImportError(
            f"{operation} needs scipy for matrices that are not Hermitian; run `pip install -e '.[large]'` in the clone"
        ) from None
    return linalg
