"""The precision things are computed in: half types in float32, and never in autocast's."""

from __future__ import annotations

import math
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
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def _largest(X: Tensor) -> Tensor:
    """The largest modulus (*, 1, 1) of a real or imaginary part of each matrix, without gradient."""
    X = X.detach()
    if 0 in X.shape[-2:]:
        return X.real.new_zeros((*X.shape[:-2], 1, 1))
    size = torch.maximum(X.real.abs(), X.imag.abs()) if X.dtype.is_complex else X.abs()
    return size.amax((-2, -1), keepdim=True)


def _exponents(dtype: torch.dtype) -> int:
    return round(math.log2(torch.finfo(dtype).max))


def ordinary(X: Tensor) -> Tensor:
    """Whether products of the entries of each matrix (*, 1, 1), and their power −3/2, stay well inside the type."""
    size, bits = _largest(X), _exponents(X.dtype) // 6
    return (size == 0) | ((size >= 2.0**-bits) & (size <= 2.0**bits))


def magnitude(X: Tensor, before: Tensor | float = 1.0) -> Tensor:
    """A power of two (*, 1, 1) without gradient to divide matrices (*, m, n) by before they are squared.

    It is 1 for :func:`ordinary` matrices, otherwise the largest modulus rounded down. Times ``before``, what X was
    divided by already, it is no smaller than what leaves a sixteenth of the exponents to a cotangent that is multiplied
    by it, and to its reciprocal. Dividing by it is exact.
    """
    size, bits = _largest(X), _exponents(X.dtype) * 15 // 16
    size = torch.where(ordinary(X) | (size == torch.inf), 1, size)
    mantissa, _ = torch.frexp(size)  # in [1/2, 1)
    least = 2.0**-bits / torch.as_tensor(before, dtype=size.dtype, device=size.device)
    return torch.maximum(size / (2 * mantissa), least)


def room(size: Tensor) -> Tensor:
    """How much of a power of two from :func:`magnitude` may be given back so that matrices are still ordinary."""
    bits = _exponents(size.dtype) // 6 - 1
    return size.clamp(2.0**-bits, 2.0**bits)


def rank_tolerance(d: int, dtype: torch.dtype) -> float:
    r"""Relative size below which an eigenvalue is rounding noise: :math:`\epsilon\max(8,3\sqrt d)`.

    Backward-stable solvers err by a few :math:`\epsilon\|A\|`, growing like :math:`\sqrt d` in practice. Null
    eigenvalues of graph Laplacians exceed :math:`\sqrt d\,\epsilon\|A\|` and stay below three times that
    (``tests/test_rank_deficiency.py``). The usual
    :math:`d\,\epsilon` would delete eigenvalues of large matrices that are known to a few per cent.
    """
    return torch.finfo(dtype).eps * max(8.0, 3 * d**0.5)


def negative_tolerance(d: int, dtype: torch.dtype) -> float:
    """Relative size of a negative eigenvalue that rounding no longer explains: 32 rank tolerances."""
    return 32 * rank_tolerance(d, dtype)


def resolved(size: Tensor) -> Tensor:
    """A norm, but no less than the smallest normal number: below it numbers are spaced as they are there."""
    return size.clamp_min(torch.finfo(size.dtype).tiny)


def reciprocal(x: Tensor, where: Tensor) -> Tensor:
    """``1/x`` where ``where`` holds and 0 elsewhere, without a gradient there; saturated for denormal x."""
    return saturated(quotient(1, x, where))


def quotient(x: Tensor | float, y: Tensor, where: Tensor) -> Tensor:
    """``x/y`` where ``where`` holds and 0 elsewhere, without a gradient there.

    Unlike x times 1/y it is finite for denormal y if the result is.
    """
    return torch.where(where, x / torch.where(where, y, 1), 0)


def saturated(x: Tensor, share: float = 1.0) -> Tensor:
    """``x`` with its real and imaginary part kept within the largest finite numbers, or a share of them."""
    if x.dtype.is_complex:
        return torch.complex(saturated(x.real, share), saturated(x.imag, share))
    limit = torch.finfo(x.dtype).max * share
    return x.clamp(-limit, limit)
