"""The check that numbers of a tensor argument are finite, where they can be read."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import NonFiniteError, batch_positions
from . import function, status


def check_finite(X: Tensor, where: str, dims: int = 2) -> None:
    """Raise :class:`NonFiniteError` if ``X`` contains NaN or infinity; its last ``dims`` dimensions are one item.

    Under compile, tracing or function transforms values cannot be read; if a solver follows, it makes the check.
    """
    eager = function.eager(X)
    if X.is_meta or not (eager or status.observed(X)):
        return
    if not eager or not _all_finite(X.detach()):
        finite = torch.isfinite(X.detach())
        bad = ~(finite.flatten(-dims).all(-1) if dims else finite)
        if status.suspected(bad):
            raise NonFiniteError(batch_positions(bad), bad.shape, where)


def _all_finite(X: Tensor) -> bool:
    """True if all numbers are finite. The extremes tell in one pass; torch.isfinite makes four, and as many tensors."""
    if not X.numel() or not (X.is_floating_point() or X.is_complex()):
        return True
    low, high = (torch.view_as_real(X.resolve_conj()) if X.is_complex() else X).aminmax()
    return math.isfinite(low.item()) and math.isfinite(high.item())
