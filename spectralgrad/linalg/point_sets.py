"""Orthogonal Procrustes: the rotation, translation and scale that align two sets of points."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..autograd.polar.point_sets import Options, align
from ..dispatch import function, status
from ..dispatch.finite import check_finite
from ..dispatch.overrides import overridable
from ..errors import ArgumentError, ShapeError, batch_positions, broadcast, check_features, check_matrix, common_shape
from ..precision import full_precision, narrow, real_dtype, widen

__all__ = ["procrustes"]


class ProcrustesResult(NamedTuple):
    """Rotation (*, k, k), translation (*, k), scale (*,), residual (*,) and margin (*,); see :func:`procrustes`."""

    rotation: Tensor
    translation: Tensor
    scale: Tensor
    residual: Tensor
    margin: Tensor


@overridable
def procrustes(
    X: Tensor,
    Y: Tensor,
    weights: Tensor | None = None,
    scale: bool = False,
    translation: bool = True,
    special: bool = True,
) -> ProcrustesResult:
    r"""Find the rotation R, translation t and scale s that map points X to points Y best (Kabsch, Umeyama).

    .. math:: \min_{R,t,s}\ \sum_i w_i\lVert s\,Rx_i+t-y_i\rVert^2,\qquad
              R=\operatorname{polar}\Bigl(\sum_i w_i(y_i-\bar y)(x_i-\bar x)^H\Bigr) .

    First and second derivatives of all results but ``margin`` are exact, also where singular values of the
    cross-covariance C are equal, and for planar clouds (coplanar points in three dimensions), whose rotation is
    determined. Where R is not determined (collinear points in three dimensions, a single point, a cloud and its mirror
    image if two singular values are equal, only zero weights), it is one of the minimisers, and the directions in
    which it is not determined contribute no gradient; ``margin`` is zero there. If all points of X coincide, the scale
    is 1 and its gradient zero. Points of any size are aligned; results that overflow are ±inf.

    Args:
        X: points (*, n, k), real or complex; half types are computed in float32.
        Y: points (*, n, k) of the same dtype; batch dimensions broadcast.
        weights: non-negative numbers (*, n), which may be zero and may require a gradient; by default all are 1.
        scale: fit s too; otherwise it is 1.
        translation: fit t too; otherwise it is 0 and points are not centred.
        special: R is a rotation with determinant +1; otherwise it may be a reflection. Complex R are unitary.

    Returns:
        named tuple ``(rotation, translation, scale, residual, margin)``. The ``residual`` (*,) is the minimum. The
        ``margin`` (*,), without gradient, says how well R is determined: derivatives of R are bounded by
        :math:`1/(\mathrm{margin}\cdot\sigma_1)`. It is :math:`(\sigma_{k-1}+\det(UV^\top)\sigma_k)/\sigma_1` of C for
        rotations and :math:`\sigma_k/\sigma_1` without ``special``, and zero if below the rank tolerance.

    Raises:
        NonFiniteError: the input contains NaN or Inf.
        ShapeError: the shapes or dtypes do not fit together.
        ArgumentError: a weight is negative; this is checked in eager mode only.

    Example:
        >>> X = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
        >>> R = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> found = procrustes(X, 3 * X @ R.T + torch.tensor([5.0, 6.0]), scale=True)
        >>> found.rotation.round(decimals=4) + 0.0, found.translation.round(decimals=4)
        (tensor([[ 0., -1.],
                [ 1.,  0.]]), tensor([5., 6.]))
        >>> round(found.scale.item(), 4), bool(found.margin > 0.1)
        (3.0, True)

    Reference: Umeyama, Least-squares estimation of transformation parameters between two point patterns (1991).
    """
    _check(X, Y, weights)
    with full_precision(X):
        found = align(*_matching(widen(X), widen(Y), weights), Options(scale, translation, special))
        return ProcrustesResult(*(narrow(part, X.dtype) for part in found))


def _matching(X: Tensor, Y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return points and weights with a common batch shape."""
    if weights is None and X.shape == Y.shape:
        return X, Y, None
    batch = common_shape(X.shape[:-2], Y.shape[:-2], *([] if weights is None else [weights.shape[:-1]]))
    w = None if weights is None else weights.to(real_dtype(X.dtype)).expand(*batch, weights.shape[-1])
    return X.expand(*batch, *X.shape[-2:]), Y.expand(*batch, *Y.shape[-2:]), w


def _check(X: Tensor, Y: Tensor, weights: Tensor | None) -> None:
    check_matrix(X, "procrustes, X", "points (*, n, k)")
    check_matrix(Y, "procrustes, Y", "points (*, n, k)")
    fit = X.shape == Y.shape or (X.shape[-2:] == Y.shape[-2:] and broadcast(X.shape[:-2], Y.shape[:-2]))
    if not fit or X.dtype != Y.dtype:
        raise ShapeError(
            f"procrustes: expected X and Y (*, n, k) of the same shape and dtype, got {tuple(X.shape)} of "
            f"{X.dtype} and {tuple(Y.shape)} of {Y.dtype}"
        )
    if weights is None:
        return
    check_features(weights, "procrustes, weights")
    fits = weights.dim() > 0 and weights.shape[-1] == X.shape[-2]
    if not fits or not broadcast(X.shape[:-2], Y.shape[:-2], weights.shape[:-1]):
        raise ShapeError(
            f"procrustes: expected weights (*, n) for points {tuple(X.shape)}, got shape {tuple(weights.shape)}"
        )
    check_finite(weights, "procrustes, weights", 1)
    if (function.eager(weights) or status.observed(weights)) and status.suspected((weights < 0).any(-1)):
        position = batch_positions(weights < 0)[0]
        raise ArgumentError(
            f"procrustes: expected weights ≥ 0, got {weights[position].item():.6g} at index {position}. "
            "Use softplus or exp for weights that are learned."
        )
