"""The check that numbers of a tensor argument are finite, where they can be read."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import NonFiniteError, batch_positions
from . import function


def check_finite(X: Tensor, where: str, dims: int = 2) -> None:
    """Raise :class:`NonFiniteError` if ``X`` contains NaN or infinity; its last ``dims`` dimensions are one item.

    Under compile, tracing or function transforms values cannot be read; if a solver follows, it makes the check.
    """
    if not function.eager(X) or X.is_meta:
        return
    finite = torch.isfinite(X.detach())
    if not bool(finite.all()):
        bad = ~(finite.flatten(-dims).all(-1) if dims else finite)
        raise NonFiniteError(batch_positions(bad), bad.shape, where)
