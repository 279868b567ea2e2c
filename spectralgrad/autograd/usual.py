"""Whether numbers are as usual, such that a short way computes the same: read on a CPU, assumed on an accelerator.

What is assumed in an optimistic run (:func:`spectralgrad.dispatch.status.assumed`) is recorded, and where it does not
hold, the call runs again in the general way. Compilers, transforms and unchecked code take the general way at once.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..dispatch import function, status
from ..native.thresholds import table
from ..precision import all_ordinary, largest, moderate, moderate_limit, ordinary_limit


def _holds(read: Callable[[], bool], unusual: Callable[[], Tensor], *tensors: Tensor) -> bool:
    """True if ``read()``, where values can be read, or where ``unusual()`` is recorded: true where it does not hold."""
    if function.eager(*tensors):
        return read()
    if not all(map(status.assumed, tensors)):
        return False
    status.suspected(unusual())
    return True


def ordinary(X: Tensor, trailing: int = 2) -> bool:
    """True if all matrices are ordinary; ``trailing`` is as in :func:`spectralgrad.precision.all_ordinary`."""
    limit = ordinary_limit(X.dtype)
    return _holds(lambda: all_ordinary(X, trailing), lambda: _outside(largest(X, trailing), limit), X)


def moderate_numbers(w: Tensor, degree: float) -> bool:
    """True if all numbers are :func:`spectralgrad.precision.moderate`."""
    limit = moderate_limit(w.dtype, degree)
    return _holds(lambda: moderate(w, degree), lambda: _outside(w.detach().abs(), limit), w)


def below(w: Tensor, limit: float) -> bool:
    """True if all numbers are smaller than ``limit``."""

    def read() -> bool:
        return (max(w.flatten().tolist()) if w.numel() <= table().few else w.amax().item()) < limit

    return _holds(read, lambda: w >= limit, w)


def between(x: Tensor, least: float, most: float) -> bool:
    """True if all numbers are larger than ``least`` and smaller than ``most``."""
    return _holds(lambda: all(least < size < most for size in x.tolist()), lambda: ~((x > least) & (x < most)), x)


def everywhere(mask: Tensor, assume: bool) -> bool:
    """True if a mask holds everywhere, which is assumed only on request."""
    return (assume or function.eager(mask)) and _holds(lambda: bool(mask.all()), lambda: ~mask, mask)


def _outside(size: Tensor, limit: float) -> Tensor:
    """True for numbers that are neither zero nor between 1/``limit`` and ``limit``, and for NaN."""
    return (size.clamp(1 / limit, limit) != size) & (size != 0)
