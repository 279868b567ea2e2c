"""Orthogonal Procrustes: the rotation, translation and scale that align two sets of points."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..autograd.functions.rescaling import homogeneous
from ..autograd.polar.deviation import deviation
from ..autograd.polar.point_sets import Options, align
from ..dispatch import function, status
from ..dispatch.finite import check_finite
from ..dispatch.overrides import overridable
from ..errors import (
    ArgumentError,
    ShapeError,
    batch_positions,
    broadcast,
    check_features,
    check_matrix,
    check_tensor,
    common_shape,
)
from ..precision import full_precision, narrow, quotient, real_dtype, widen
from .spd_distances import finished

__all__ = ["procrustes", "rmsd"]


class ProcrustesResult(NamedTuple):
    """Rotation (*, k, k), translation (*, k), scale (*,), residual (*,) and margin (*,); see :func:`procrustes`."""

    rotation: Tensor
    translation: Tensor
    scale: Tensor
    residual: Tensor
    margin: Tensor

    def unstable(self, threshold: float = 1e-3) -> Tensor:
        """Return the mask (*,) of the rotations that the points hardly determine: ``margin`` ≤ ``threshold``.

        Points that move by a part δ of their spread turn such a rotation by δ/threshold or more.
        """
        return self.margin <= threshold


@overridable
def procrustes(
    X: Tensor,
    Y: Tensor,
    weights: Tensor | None = None,
    scale: bool = False,
    translation: bool = True,
    special: bool = True,
    *,
    mask: Tensor | None = None,
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
        mask: booleans (*, n), False for points that do not count, such as padding. They may be NaN, and their
            gradients are exactly zero.

    Returns:
        named tuple ``(rotation, translation, scale, residual, margin)``. The ``residual`` (*,) is the minimum. The
        ``margin`` (*,), without gradient, says how well R is determined: derivatives of R are bounded by
        :math:`1/(\mathrm{margin}\cdot\sigma_1)`. It is :math:`(\sigma_{k-1}+\det(UV^\top)\sigma_k)/\sigma_1` of C for
        rotations and :math:`\sigma_k/\sigma_1` without ``special``, and zero if below the rank tolerance.
        ``unstable()`` of the result is the mask (*,) of rotations with a margin of at most 1e-3.

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
    if mask is None:
        _check(X, Y, weights, "procrustes")
    else:
        X, Y, weights = _counted(X, Y, weights, mask, "procrustes")
    with full_precision(X):
        found = align(*_matching(widen(X), widen(Y), weights), Options(scale, translation, special))
        return ProcrustesResult(*(narrow(part, X.dtype) for part in found))


@overridable
def rmsd(
    X: Tensor,
    Y: Tensor,
    *,
    weights: Tensor | None = None,
    mask: Tensor | None = None,
    squared: bool = True,
    scale: bool = False,
    translation: bool = True,
    special: bool = True,
) -> Tensor:
    r"""Compute the mean squared distance of points after the best alignment, or its root (RMSD).

    .. math:: \min_{R,t,s}\ \frac{\sum_iw_i\lVert s\,Rx_i+t-y_i\rVert^2}{\sum_iw_i}

    At the minimum the derivatives in the rotation R, the translation t and the scale s vanish, so the gradient is the
    one at fixed R, t and s: it needs no derivative of a decomposition, no margin makes it larger, and it vanishes for
    equal point sets. Where several rotations are best (see :func:`procrustes`), it is the derivative at one of them.
    Second derivatives differentiate the rotation, and are exact where it is determined.

    Args:
        X, Y, weights, scale, translation, special: as in :func:`procrustes`; with ``scale`` X is scaled to fit Y.
        mask: booleans (*, n), False for points that do not count, such as padding. They may be NaN, and their
            gradients are exactly zero.
        squared: return the mean squared distance, which is smooth at zero; otherwise its root, whose gradient is taken
            as 0 where it is 0.

    Returns:
        the distances (*,), real; 0 without points.

    Raises:
        NonFiniteError, ShapeError, ArgumentError: as in :func:`procrustes`.

    Example:
        >>> X = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0], [torch.nan, torch.nan]])   # three points and padding
        >>> Y = (X @ torch.tensor([[0.0, 1.0], [-1.0, 0.0]]) + 7).requires_grad_()           # turned and moved
        >>> distance = rmsd(X, Y, mask=torch.tensor([True, True, True, False]))
        >>> distance.detach().round(decimals=4)
        tensor(0.)
        >>> torch.autograd.grad(distance, Y)[0].abs().max() < 1e-5
        tensor(True)

    Reference: Coutsias, Seok and Dill, Using quaternions to calculate RMSD (2004).
    """
    if mask is None:
        _check(X, Y, weights, "rmsd")
    else:
        X, Y, weights = _counted(X, Y, weights, mask, "rmsd")
    options = Options(scale, translation, special)
    apart = (((1, 0), (0,)), ((0, 1), (2,))) if scale else (((1, 1), (2,)),)  # X may be scaled by itself if s is fitted

    def distance(X: Tensor, Y: Tensor, w: Tensor | None = None) -> Tensor:
        total = X.real.new_full((), X.shape[-2]) if w is None else w.sum(-1)
        return finished(quotient(deviation(X, Y, w, options, "rmsd"), total, total > 0), squared)

    scales = [((*p, 0), (q if squared else q / 2,)) for p, (q,) in apart] + [((0, 0, 1), (0,))]
    with full_precision(X):
        given = [x for x in _matching(widen(X), widen(Y), weights) if x is not None]
        count = len(given)
        used = [(p[:count], q) for p, q in scales if any(p[:count])]
        found: Tensor = homogeneous(distance, given, *used, trailing=(2, 2, 1)[:count])
        return narrow(found, X.dtype)


def _counted(X: Tensor, Y: Tensor, weights: Tensor | None, mask: Tensor, where: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return checked arguments, where points outside of the mask are zero and weigh nothing."""
    _check(X, Y, None, where)
    _check_mask(mask, X, Y, where)
    if weights is not None:
        check_features(weights, f"{where}, weights")
        _check_fits(weights, X, Y, f"{where}: expected weights (*, n)")
    counts = mask.unsqueeze(-1)
    w = mask.to(real_dtype(widen(X).dtype)) if weights is None else torch.where(mask, weights, 0)
    X, Y = torch.where(counts, X, 0), torch.where(counts, Y, 0)
    _check(X, Y, w, where)
    return X, Y, w


def _matching(X: Tensor, Y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return points and weights with a common batch shape."""
    if weights is None and X.shape == Y.shape:
        return X, Y, None
    batch = common_shape(X.shape[:-2], Y.shape[:-2], *([] if weights is None else [weights.shape[:-1]]))
    w = None if weights is None else weights.to(real_dtype(X.dtype)).expand(*batch, weights.shape[-1])
    return X.expand(*batch, *X.shape[-2:]), Y.expand(*batch, *Y.shape[-2:]), w


def _check(X: Tensor, Y: Tensor, weights: Tensor | None, where: str) -> None:
    check_matrix(X, f"{where}, X", "points (*, n, k)")
    check_matrix(Y, f"{where}, Y", "points (*, n, k)")
    fit = X.shape == Y.shape or (X.shape[-2:] == Y.shape[-2:] and broadcast(X.shape[:-2], Y.shape[:-2]))
    if not fit or X.dtype != Y.dtype:
        raise ShapeError(
            f"{where}: expected X and Y (*, n, k) of the same shape and dtype, got {tuple(X.shape)} of "
            f"{X.dtype} and {tuple(Y.shape)} of {Y.dtype}"
        )
    if weights is None:
        return
    check_features(weights, f"{where}, weights")
    _check_fits(weights, X, Y, f"{where}: expected weights (*, n)")
    check_finite(weights, f"{where}, weights", 1)
    if (function.eager(weights) or status.observed(weights)) and status.suspected((weights < 0).any(-1)):
        position = batch_positions(weights < 0)[0]
        raise ArgumentError(
            f"{where}: expected weights ≥ 0, got {weights[position].item():.6g} at index {position}. "
            "Use softplus or exp for weights that are learned."
        )


def _check_mask(mask: Tensor, X: Tensor, Y: Tensor, where: str) -> None:
    check_tensor(mask, f"{where}, mask")
    if mask.dtype != torch.bool:
        raise ShapeError(f"{where}: expected mask to be a tensor of booleans (*, n), got {mask.dtype}")
    _check_fits(mask, X, Y, f"{where}: expected mask (*, n)")


def _check_fits(w: Tensor, X: Tensor, Y: Tensor, expected: str) -> None:
    fits = w.dim() > 0 and w.shape[-1] == X.shape[-2]
    if not fits or not broadcast(X.shape[:-2], Y.shape[:-2], w.shape[:-1]):
        raise ShapeError(f"{expected} for points {tuple(X.shape)}, got shape {tuple(w.shape)}")
