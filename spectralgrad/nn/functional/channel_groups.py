"""Features (N, C, *) as matrices (B, G, d, n) of G groups of channels, where B is N, or 1 for all samples; and back."""

from __future__ import annotations

import math

from torch import Tensor

from ...dispatch.arguments import check_count
from ...errors import ArgumentError, ShapeError, check_features
from ...precision import working_dtype


def check_groups(X: Tensor, groups: int, where: str) -> None:
    """Raise an error unless ``X`` is features (N, C, *) whose channels ``groups`` divides."""
    check_features(X, where)
    if X.dim() < 3:
        raise ShapeError(f"{where}: expected floating-point features (N, C, *), got {X.dtype} {tuple(X.shape)}")
    check_count(groups, "groups", where)
    if X.shape[1] % groups:
        raise ArgumentError(f"{where}: expected groups to be a divisor of the {X.shape[1]} channels, got {groups}")


def grouped(X: Tensor, groups: int, per_sample: bool, where: str) -> Tensor:
    """(N, C, *) → (N, G, d, n) per sample, or (1, G, d, N·n) over the batch, in working precision."""
    check_groups(X, groups, where)
    positions = math.prod(X.shape[2:])
    features = X.to(working_dtype(X.dtype)).reshape(X.shape[0], groups, X.shape[1] // groups, positions)
    return features if per_sample else features.permute(1, 2, 0, 3).flatten(2).unsqueeze(0)


def restored(Y: Tensor, X: Tensor, per_sample: bool) -> Tensor:
    """The inverse of :func:`grouped`: the shape and type of ``X``."""
    if not per_sample:
        _, groups, d, _ = Y.shape
        Y = Y.view(groups, d, X.shape[0], math.prod(X.shape[2:])).permute(2, 0, 1, 3)
    return Y.reshape(X.shape).to(X.dtype)
