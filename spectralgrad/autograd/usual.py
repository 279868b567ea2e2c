"""What an optimistic run on an accelerator assumes of numbers, so that a short way computes what the general one does.

Each function records where the assumption does not hold, for the call then runs again, in the general way. It returns
False where nothing is assumed (:func:`spectralgrad.dispatch.status.assumed`): in compilers, transforms, unchecked code
and the second run. Where values can be read, as on a CPU, callers read them instead.
"""

from __future__ import annotations

from torch import Tensor

from ..dispatch import status
from ..precision import largest, moderate_limit, ordinary_limit


def ordinary(X: Tensor, trailing: int = 2) -> bool:
    """Assume that all matrices are ordinary, as :func:`spectralgrad.precision.all_ordinary` tells on a CPU."""
    return status.assumed(X) and _within(largest(X, trailing), ordinary_limit(X.dtype))


def moderate(w: Tensor, degree: float) -> bool:
    """Assume that all numbers are :func:`spectralgrad.precision.moderate`."""
    return status.assumed(w) and _within(w.detach().abs(), moderate_limit(w.dtype, degree))


def below(w: Tensor, most: float) -> bool:
    """Assume that all numbers are smaller than ``most``."""
    return status.assumed(w) and _unless(~(w < most))


def between(x: Tensor, least: float, most: float) -> bool:
    """Assume that all numbers are larger than ``least`` and smaller than ``most``."""
    return status.assumed(x) and _unless(~((x > least) & (x < most)))


def everywhere(mask: Tensor) -> bool:
    """Assume that a mask holds everywhere."""
    return status.assumed(mask) and _unless(~mask)


def _within(size: Tensor, limit: float) -> bool:
    """Assume that sizes are zero or between 1/``limit`` and ``limit``."""
    return _unless((size.clamp(1 / limit, limit) != size) & (size != 0))  # true for NaN


def _unless(unusual: Tensor) -> bool:
    status.suspected(unusual)
    return True
