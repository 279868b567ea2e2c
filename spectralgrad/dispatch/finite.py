"""The check that numbers of a tensor argument are finite, where they can be read."""

from __future__ import annotations

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
    finite = torch.isfinite(X.detach())
    if not eager or not bool(finite.all()):
        bad = ~(finite.flatten(-dims).all(-1) if dims else finite)
        if status.suspected(bad):
            raise NonFiniteError(batch_positions(bad), bad.shape, where)
