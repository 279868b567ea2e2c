"""Which floating-point type to compute in, and helpers that keep values within its range.

Half types are computed in float32, and autocast is disabled. Scale factors are powers of two, so that scaling is exact.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

import torch
from torch import Tensor

from .dispatch.host import has_double
from .dispatch.torch_internals import is_autocast_available
from .native.thresholds import table

_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
# The binary exponents at which the types overflow.
_EXPONENTS = {
    torch.float16: 16,
    torch.bfloat16: 128,
    torch.float32: 128,
    torch.complex64: 128,
    torch.float64: 1024,
    torch.complex128: 1024,
}
_REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return float32 for the half types, complex64 for complex32, and ``dtype`` itself otherwise."""
    return _WIDER.get(dtype, dtype)


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the real dtype of the same precision."""
    return _REAL.get(dtype, dtype)


def widen(A: Tensor) -> Tensor:
    """Convert ``A`` to its working precision."""
    if A.dtype in _WIDER or torch.compiler.is_compiling():
        # Compiled torch.func.grad cannot pass its own input to an autograd function that calls an operator.
        return A.to(working_dtype(A.dtype))
    return A


def doubled(A: Tensor) -> Tensor:
    """Convert ``A`` to double precision, real or complex."""
    return A.to(torch.promote_types(A.dtype, torch.float64))


def widest(X: Tensor) -> torch.dtype:
    """Return the dtype in which sums over ``X`` are taken: double precision if its device has that."""
    return torch.promote_types(X.dtype, torch.float64) if has_double(X.device) else working_dtype(X.dtype)


def narrow(X: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a result to the dtype of the input, or to the real dtype of the same precision if the result is real."""
    if dtype in _REAL and not X.dtype.is_complex:
        dtype = _REAL[dtype]
    return X if X.dtype == dtype else X.to(dtype)  # a call of .to costs a microsecond even if there is nothing to do


def rounded_to(A: Tensor) -> torch.dtype:
    """Return the type of the rounding errors in ``A``: its own, or under autocast the type of matrix products."""
    kind = "cpu" if A.is_cpu else A.device.type
    if A.dtype == torch.float32 and is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return A.dtype


def full_precision(A: Tensor) -> AbstractContextManager[object]:
    """Return a context in which autocast does not lower the precision of matrix products."""
    kind = "cpu" if A.is_cpu else A.device.type
    if is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def largest(X: Tensor, trailing: int = 2) -> Tensor:
    """Return the largest modulus of each matrix (*,), or of vectors or numbers (``trailing`` 1 or 0); no gradient."""
    X = X.detach()
    dims = tuple(range(-trailing, 0))
    if not X.shape[X.dim() - trailing :].numel():
        return X.real.new_zeros(X.shape[: X.dim() - trailing])
    if dims and not X.dtype.is_complex and not torch.compiler.is_compiling() and not X.is_cpu:
        return torch.linalg.vector_norm(X, math.inf, dims)  # in one kernel
    # Parts instead of moduli: the modulus of a finite complex number may overflow.
    size = torch.maximum(X.real.abs(), X.imag.abs()) if X.dtype.is_complex else X.abs()
    return size.amax(dims) if dims else size


def exponent_range(dtype: torch.dtype) -> int:
    """Return the binary exponent at which the dtype overflows."""
    return _EXPONENTS[dtype]


def _bits(dtype: torch.dtype) -> int:
    """The largest exponent of ordinary numbers: squares of 2^±bits, to the power −3/2, use half of the range."""
    return _EXPONENTS[dtype] // 6


def ordinary_limit(dtype: torch.dtype) -> float:
    """Return the limit on the largest number of ordinary matrices; its reciprocal is the lower one."""
    return float(2.0 ** _bits(dtype))


def _is_ordinary(size: Tensor) -> Tensor:
    limit = ordinary_limit(size.dtype)
    return (size == 0) | ((size >= 1 / limit) & (size <= limit))


def all_ordinary(X: Tensor, trailing: int = 2) -> bool:
    """True if the products of all matrices, and their power −3/2, stay well within the dtype's range.

    Such matrices are called ordinary. It reads values, so it cannot be traced.
    """
    limit, batch, count = ordinary_limit(X.dtype), X.dim() - trailing, X.numel()
    if not batch and count and not X.dtype.is_complex:  # one matrix
        if count > table().few:
            low, high = X.detach().aminmax()
            size = max(-low.item(), high.item())
        else:
            size = max(map(abs, X.flatten().tolist()))
        return 1 / limit <= size <= limit or size == 0
    if count and (count > table().few or X.dtype.is_complex):
        least, most = (x.item() for x in largest(X, trailing).aminmax())
        return most <= limit and (least >= 1 / limit or bool(_is_ordinary(largest(X, trailing)).all()))
    sizes = [max(map(abs, row)) for row in X.reshape(-1, X.shape[batch:].numel()).tolist()] if count else []
    return all(1 / limit <= size <= limit or size == 0 for size in sizes)


def moderate(w: Tensor, degree: float) -> bool:
    """True if no number but 0, to the power ±(``degree`` + 2), uses more than half of the range; it reads values."""
    limit = moderate_limit(w.dtype, degree)
    if w.numel() > table().few:
        low, high = w.aminmax()
        if 1 / limit < low.item() and high.item() < limit:  # all positive, as eigenvalues of covariances are
            return True
        size = torch.where(w == 0, 1, w.abs()).aminmax()
        return 1 / limit < size.min.item() and size.max.item() < limit
    values = w.flatten().tolist()
    if values and min(values) > 1 / limit and max(values) < limit:
        return True
    return all(1 / limit < abs(x) < limit for x in values if x)


def moderate_limit(dtype: torch.dtype, degree: float) -> float:
    """The number below which, and above whose reciprocal, all numbers are :func:`moderate`."""
    return float(2.0 ** (_EXPONENTS[dtype] / 2 / (degree + 2)))


def any_infinite(w: Tensor) -> bool:
    """True if a number is ±inf; it reads values."""
    return any_beyond(w, math.inf)


def any_beyond(w: Tensor, limit: float) -> bool:
    """True if the modulus of a number is ``limit`` or larger; it reads values."""
    if w.numel() > table().few:
        return not w.abs().amax().item() < limit
    return any(abs(x) >= limit for x in w.flatten().tolist())


def exponent(X: Tensor, trailing: int = 2) -> Tensor:
    """Return e (*,), even and without gradient, such that 2⁻ᵉ times each matrix has its largest entry in [1/2, 2].

    It is 0 for ordinary matrices (:func:`all_ordinary`) and for those with NaN or infinity.

    Args:
        X: matrices (*, m, n), vectors (*, n) or numbers (*,).
        trailing: 2, 1 or 0 accordingly.
    """
    size = largest(X, trailing)
    return torch.where(_is_ordinary(size), 0, exponent_of(size))


def exponent_of(size: Tensor) -> Tensor:
    """Return the even exponents of positive numbers; 0 for other numbers."""
    proper = (size > 0) & (size < torch.inf)
    e = torch.frexp(torch.where(proper, size, 1).detach()).exponent.to(size.dtype)
    return torch.where(proper, torch.floor(e / 2) * 2, 0)


def ldexp(X: Tensor, e: Tensor) -> Tensor:
    """Return X·2ᵉ, correctly rounded: ±inf where it overflows, and never NaN for X without NaN.

    One power of two may be beyond the range where the product is not, so there are three. Parts of complex numbers are
    multiplied separately: a product with a complex number would turn inf·0 into NaN.
    """
    if X.dtype.is_complex:
        return torch.complex(ldexp(X.real, e), ldexp(X.imag, e))
    e = e.to(X.dtype).clamp(-2.2 * _EXPONENTS[X.dtype], 2.2 * _EXPONENTS[X.dtype])  # beyond, all numbers are inf or 0
    third = torch.trunc(e / 3)
    power = torch.exp2(third)
    return X * power * power * torch.exp2(e - 2 * third)


def magnitude(X: Tensor, before: Tensor | float = 1) -> Tensor:
    """Return the power of two (*, 1, 1), without gradient, by which to divide matrices (*, m, n) before squaring them.

    It is 1 for ordinary matrices, otherwise the largest modulus rounded down to a power of two. Gradients are
    multiplied by the total scale or by its reciprocal, so the total is limited from below such that both leave a
    sixteenth of the exponent range free.

    Args:
        X: matrices (*, m, n).
        before: what X has already been divided by; the lower limit applies to the product.
    """
    size, bits = largest(X)[..., None, None], _EXPONENTS[X.dtype] * 15 // 16
    size = torch.where(_is_ordinary(size) | (size == torch.inf), 1, size)
    mantissa, _ = torch.frexp(size)  # in [1/2, 1)
    return torch.maximum(size / (2 * mantissa), 2.0**-bits / number(before, size))


def number(x: Tensor | float, like: Tensor) -> Tensor:
    """Return a number as a tensor of the type and on the device of ``like``, without a copy from the host."""
    return x.to(like) if isinstance(x, Tensor) else like.new_full((), x)


def room(size: Tensor) -> Tensor:
    """Return the part of a scale from :func:`magnitude` that can be undone while the matrices remain ordinary."""
    bits = _bits(size.dtype) - 1
    return size.clamp(2.0**-bits, 2.0**bits)


def mean(X: Tensor) -> Tensor:
    """Return the mean over the last dimension, which is kept.

    Real and imaginary parts are divided separately, because a complex z/1 is not quite z in torch 2.6.
    """
    if not X.dtype.is_complex:
        return X.mean(-1, keepdim=True)
    total, count = X.sum(-1, keepdim=True), X.shape[-1]
    return torch.complex(total.real / count, total.imag / count)


def rank_tolerance(d: int, dtype: torch.dtype) -> float:
    r"""Return the relative size below which an eigenvalue counts as zero: :math:`\epsilon\max(8,3\sqrt d)`.

    The error of a backward-stable solver is a few :math:`\epsilon\|A\|` and in practice grows like :math:`\sqrt d`. The
    computed null eigenvalues of graph Laplacians exceed :math:`\sqrt d\,\epsilon\|A\|` and stay below three times that
    (``tests/test_rank_deficiency.py``). The customary :math:`d\,\epsilon` would discard eigenvalues of large matrices
    that are accurate to a few per cent. For half types :math:`\epsilon` is float32's, in which they are computed:
    many of their matrices, such as diagonal ones, have small eigenvalues that rounding did not change.
    """
    return torch.finfo(working_dtype(dtype)).eps * max(8.0, 3 * d**0.5)


def negative_tolerance(d: int, dtype: torch.dtype) -> float:
    r"""Return the relative size beyond which a negative eigenvalue of a matrix of this dtype is an error.

    It is 32 times :func:`rank_tolerance`, and for half types at least :math:`\epsilon\min(2\sqrt d,32)`. Rounding to a
    half type changes an entry by at most :math:`\tfrac12\epsilon|a_{ij}|`, hence eigenvalues by at most
    :math:`\tfrac12\epsilon\|A\|_F\le\tfrac12\epsilon\sqrt d\,\|A\|`, and a computation may round several times. The
    errors of many entries do not add up to more than a few :math:`\epsilon\|A\|`, so the bound need not grow further.
    """
    tolerance = 32 * rank_tolerance(d, dtype)
    return max(tolerance, torch.finfo(dtype).eps * min(2 * d**0.5, 32.0)) if dtype in _WIDER else tolerance


@lru_cache
def asymmetry_tolerance(dtype: torch.dtype) -> float:
    r"""Return the largest accepted relative asymmetry :math:`\max|A-A^H|/\max|A|`, which is :math:`\epsilon^{1/4}`.

    That is 1e-4 in float64, 2e-2 in float32 and 0.3 in bfloat16. Rounding of a computed congruence :math:`MAM^H` leaves
    an asymmetry of :math:`\epsilon` times a condition number, which may be as large as :math:`\epsilon^{-3/4}`, 2e5 in
    float32. Finite differences of single entries, with the usual steps of :math:`\epsilon^{1/3}` or 1e-6, are accepted
    as well. Matrices passed by mistake, such as triangular or random ones, have an asymmetry of order one.
    """
    return torch.finfo(dtype).eps ** 0.25


def resolved(size: Tensor) -> Tensor:
    """Clamp a norm at the smallest normal number: the spacing of floating-point numbers does not shrink below it."""
    return size.clamp_min(torch.finfo(size.dtype).tiny)


def reciprocal(x: Tensor, where: Tensor) -> Tensor:
    """Return ``1/x`` where ``where`` is true and 0, without gradient, elsewhere; saturated for subnormal x."""
    return saturated(where / torch.where(where, x, 1))


def quotient(x: Tensor | float, y: Tensor, where: Tensor) -> Tensor:
    """Return ``x/y`` where ``where`` is true and 0, without gradient, elsewhere.

    Unlike ``x * (1 / y)`` it does not overflow for subnormal y if the quotient is finite.
    """
    # The inner where replaces the unused denominators: a division by zero there would turn the gradient into NaN.
    return torch.where(where, x / torch.where(where, y, 1), 0)


def saturated(x: Tensor, share: float = 1) -> Tensor:
    """Clamp the real and imaginary parts of ``x`` to ``share`` times the largest finite number."""
    if x.dtype.is_complex:
        return torch.complex(saturated(x.real, share), saturated(x.imag, share))
    limit = torch.finfo(x.dtype).max * share
    return x.clamp(-limit, limit)
