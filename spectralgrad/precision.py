"""The precision things are computed in: half types in float32, and never in autocast's."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)
_REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for the half types, complex64 for complex32, the type itself otherwise."""
    if dtype in _HALF:
        return torch.float32
    return torch.complex64 if dtype == torch.complex32 else dtype


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The real type of the same precision."""
    return _REAL.get(dtype, dtype)


def widen(A: Tensor) -> Tensor:
    """``A`` in its working precision."""
    return A.to(working_dtype(A.dtype))


def full_precision(A: Tensor) -> AbstractContextManager[object]:
    """A context in which autocast does not lower the precision of matrix products."""
    kind = A.device.type
    if _has_autocast(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def _has_autocast(kind: str) -> bool:
    """Whether a kind of device has autocast at all, a question that Dynamo of torch 2.6 does not trace."""
    return kind != "meta" if torch.compiler.is_compiling() else torch.amp.is_autocast_available(kind)


def rank_tolerance(d: int, dtype: torch.dtype) -> float:
    r"""Relative size below which an eigenvalue is rounding noise: :math:`\epsilon\max(4,\sqrt d)`.

    Backward-stable solvers err by a few :math:`\epsilon\|A\|`, growing like :math:`\sqrt d` in practice; the
    usual :math:`d\,\epsilon` would already delete eigenvalues that are known to 5 %.
    """
    return torch.finfo(dtype).eps * max(4.0, d**0.5)


def negative_tolerance(d: int, dtype: torch.dtype) -> float:
    """Relative size of a negative eigenvalue that rounding no longer explains: 64 rank tolerances."""
    return 64 * rank_tolerance(d, dtype)
