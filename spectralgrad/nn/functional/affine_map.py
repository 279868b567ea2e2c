r"""The map of features by a matrix: :math:`y=\gamma\circ W(x-\mu)+\beta`, with μ and W given."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...dispatch import function
from ...dispatch.arguments import checked
from ...errors import ShapeError, check_features
from ...precision import full_precision, working_dtype
from . import feature_matrices

__all__ = ["apply_matrix"]


@checked
def apply_matrix(
    X: Tensor,
    mean: Tensor,
    matrix: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Normalise features by given statistics: γ ∘ matrix (x − mean) + β.

    Args:
        X: features (N, C, *).
        mean: (C,).
        matrix: (G, d, d).
        weight, bias, dtype: as in :func:`normalize`.

    Example:
        >>> matrix = torch.tensor([[[1.0, 2.0], [0.0, 1.0]]])
        >>> apply_matrix(torch.ones(1, 2, 1), torch.zeros(2), matrix).flatten()
        tensor([3., 1.])
    """
    check_affine(X, weight, bias, "apply_matrix")
    _check_statistics(X, mean, matrix)
    dtype = dtype or working_dtype(X.dtype)
    groups, d = matrix.shape[:2]
    mean = mean.to(dtype).view(groups, d)
    matrix, shift = with_affine(matrix.to(dtype), weight, bias)
    learning = torch.is_grad_enabled() and (matrix.requires_grad or shift.requires_grad)
    if function.needs_no_gradient(X) and not learning and function.eager(X):
        return feature_matrices.affine(feature_matrices.dense(X), mean, matrix, shift)
    with full_precision(X):
        features = X.to(dtype).reshape(X.shape[0], groups, d, math.prod(X.shape[2:])) - mean.unsqueeze(-1)
        out = affine(features, matrix, shift).view(X.shape).to(X.dtype)
    return feature_matrices.dense(out, like=X) if function.reverse_only(X) else out


def check_affine(X: Tensor, weight: Tensor | None, bias: Tensor | None, where: str) -> None:
    """Raise :class:`ShapeError` unless ``X`` is features (N, C, *), and ``weight`` and ``bias`` are (C,) or None."""
    check_features(X, f"{where}, X")
    if X.dim() < 2:
        raise ShapeError(f"{where}: expected features X (N, C, *), got shape {tuple(X.shape)}")
    for name, each in (("weight", weight), ("bias", bias)):
        if each is not None:
            check_features(each, f"{where}, {name}")
            if each.shape != (X.shape[1],):
                raise ShapeError(f"{where}: expected {name} of shape ({X.shape[1]},), got {tuple(each.shape)}")


def _check_statistics(X: Tensor, mean: Tensor, matrix: Tensor) -> None:
    check_features(mean, "apply_matrix, mean")
    check_features(matrix, "apply_matrix, matrix")
    channels = X.shape[1]
    if mean.shape != (channels,):
        raise ShapeError(f"apply_matrix: expected mean of shape ({channels},), got {tuple(mean.shape)}")
    square = matrix.dim() == 3 and matrix.shape[-1] == matrix.shape[-2]
    if not square or matrix.shape[0] * matrix.shape[1] != channels:
        raise ShapeError(
            f"apply_matrix: expected matrix of shape (G, d, d) with G·d = {channels}, got {tuple(matrix.shape)}"
        )


def with_affine(W: Tensor, weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """diag(γ) W and β (G, d)."""
    shape = W.shape[:2]
    shift = W.new_zeros(shape) if bias is None else bias.to(W.dtype).view(shape)
    return (W if weight is None else weight.to(W.dtype).view(*shape, 1) * W), shift


def affine(features: Tensor, matrix: Tensor, shift: Tensor) -> Tensor:
    """``matrix`` x + ``shift`` for centered features (N, G, d, n), in operations that autograd sees."""
    return matrix @ features + shift.unsqueeze(-1)
