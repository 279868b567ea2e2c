r"""Distances between Gaussian distributions, and the linear map that transports one to the other.

The Wasserstein distance of order two between Gaussians with means :math:`\mu` and covariances A, B is

.. math:: W^2=\|\mu_1-\mu_2\|^2+\mathrm{tr}A+\mathrm{tr}B-2\,\mathrm{tr}(A^{1/2}BA^{1/2})^{1/2} .

The last three terms are the squared Bures–Wasserstein distance. They are computed from any factors
:math:`A=X^HX`, :math:`B=Y^HY`, such as square roots or the centred samples themselves; see
:mod:`spectralgrad.autograd.polar.bures_distance`. Products square singular values, so single precision continues in
double.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..autograd.functions import square_root
from ..autograd.functions.domain import Domain
from ..autograd.functions.rescaling import homogeneous
from ..autograd.polar import bures_distance, range_factors
from ..dispatch.finite import check_finite
from ..dispatch.overrides import overridable
from ..errors import ShapeError, broadcast, check_alike, check_dense, check_matrix, check_pair, common_shape
from ..precision import doubled, full_precision, narrow, widen
from ..rules import Exact
from .covariances import root_of_count
from .spd_distances import finished

__all__ = ["bures_wasserstein", "frechet_distance", "gaussian_transport", "gaussian_wasserstein"]


@overridable
def bures_wasserstein(
    A: Tensor, B: Tensor, *, squared: bool = True, rtol: float | None = None, clamp: bool = False
) -> Tensor:
    r"""Compute the squared Bures–Wasserstein distance between positive semi-definite matrices.

    .. math:: \mathrm{tr}A+\mathrm{tr}B-2\,\mathrm{tr}(A^{1/2}BA^{1/2})^{1/2}
              =\min_Q\|A^{1/2}-B^{1/2}Q\|^2 ,\qquad \bar A=I-T,

    with the minimum over orthogonal Q and the :func:`gaussian_transport` T from A to B. It is computed as the norm of a
    difference: never negative, accurate for nearly equal matrices, and its gradient vanishes where they are equal. For
    singular matrices the gradient is that within the matrices of the same rank.

    Args:
        A: positive semi-definite matrices (*, d, d), real or complex.
        B: matrices of the same size and dtype; batch dimensions broadcast.
        squared: return the squared distance; otherwise its root, whose gradient is taken as 0 where it is 0.
        rtol, clamp: as in :func:`matrix_sqrt`.

    Returns:
        the distances (*,), real.

    Raises:
        ShapeError: the matrices are not square or do not fit.
        AsymmetricError, IndefiniteError, NonFiniteError: as in :func:`matrix_sqrt`.

    Example:
        >>> A, B = torch.diag(torch.tensor([4.0, 1.0])), torch.diag(torch.tensor([1.0, 0.0]))
        >>> round(bures_wasserstein(A, B).item(), 4)         # (2 - 1)² + (1 - 0)²
        2.0
        >>> A = torch.eye(2, requires_grad=True)             # all eigenvalues equal, and both matrices equal
        >>> torch.autograd.grad(bures_wasserstein(A, torch.eye(2)), A)[0].abs().max()
        tensor(0.)

    Reference: Bhatia, Jain and Lim, On the Bures–Wasserstein distance between positive definite matrices, 2019.
    """
    check_pair(A, B, "bures_wasserstein")
    domain = Domain.of(A, "bures_wasserstein", rtol, clamp)
    with full_precision(A):
        R, S = _roots(A, B, domain)
        return narrow(_between(lambda R, S: _distance(R, S, "bures_wasserstein"), (R, S), squared), A.dtype)


@overridable
def gaussian_wasserstein(
    mean1: Tensor,
    cov1: Tensor,
    mean2: Tensor,
    cov2: Tensor,
    *,
    squared: bool = True,
    rtol: float | None = None,
    clamp: bool = False,
) -> Tensor:
    r"""Compute the squared Wasserstein distance between Gaussians: the Fréchet distance, or FID for Inception features.

    .. math:: \|\mu_1-\mu_2\|^2+\mathrm{tr}\,C_1+\mathrm{tr}\,C_2-2\,\mathrm{tr}(C_1^{1/2}C_2C_1^{1/2})^{1/2}

    Args:
        mean1: means (*, d) of the first Gaussians.
        cov1: their covariances (*, d, d), possibly singular.
        mean2: means of the second Gaussians; all batch dimensions broadcast.
        cov2: their covariances.
        squared, rtol, clamp: as in :func:`bures_wasserstein`.

    Returns:
        the distances (*,), real.

    Raises:
        ShapeError, AsymmetricError, IndefiniteError, NonFiniteError: as in :func:`bures_wasserstein`.

    Example:
        >>> zero, identity = torch.zeros(2), torch.eye(2)
        >>> gaussian_wasserstein(zero, identity, zero + 3, 4 * identity)    # 3² + 3² + (2 - 1)² + (2 - 1)²
        tensor(20.)

    Reference: Dowson and Landau, The Fréchet distance between multivariate normal distributions, 1982; Heusel et al.,
    GANs trained by a two time-scale update rule, NeurIPS 2017.
    """
    check_pair(cov1, cov2, "gaussian_wasserstein", ("cov1", "cov2"))
    _check_means(mean1, mean2, cov1.dtype, (*common_shape(cov1.shape[:-2], cov2.shape[:-2]), cov1.shape[-1]))
    domain = Domain.of(cov1, "gaussian_wasserstein", rtol, clamp)
    with full_precision(cov1):
        R, S = _roots(cov1, cov2, domain)

        def distance(R: Tensor, S: Tensor, mean1: Tensor, mean2: Tensor) -> Tensor:
            return _distance(R, S, "gaussian_wasserstein") + _square(mean1 - mean2)

        means = doubled(mean1), doubled(mean2)
        return narrow(_between(distance, (R, S, *means), squared, (2, 2, 1, 1)), cov1.dtype)


@overridable
def frechet_distance(X: Tensor, Y: Tensor, *, correction: int = 1, squared: bool = True) -> Tensor:
    r"""Compute the squared Fréchet distance between samples, each described by its mean and covariance.

    This is :func:`gaussian_wasserstein` of the samples' moments. If there are fewer samples than features, no
    covariance is formed: with centred samples :math:`X_c` and :math:`Y_c`, divided by :math:`\sqrt{n-c}`,

    .. math:: \mathrm{tr}(C_1^{1/2}C_2C_1^{1/2})^{1/2}=\|X_cY_c^H\|_* ,

    so 256 samples of 2048 features need the SVD of one 256×256 matrix. The gradient is exact for equal samples and at
    any rank, so the distance can be a loss.

    With more samples than features the covariances are decomposed, in double precision. Directions whose standard
    deviation is less than about 1e-7 of the largest (:math:`\sqrt{\epsilon\max(8,3\sqrt d)}`) then count as constant:
    only their mean has a gradient. Bring such features to a common scale first.

    Args:
        X: samples (*, n, d): n samples of d features; half types are computed in float32.
        Y: samples (*, m, d) of the same dtype; batch dimensions broadcast.
        correction: c; 1 divides by n − 1, as the usual FID code does, 0 by n.
        squared: as in :func:`bures_wasserstein`.

    Returns:
        the distances (*,), real.

    Raises:
        ShapeError: the samples do not fit, or there are not more than ``correction`` of them.
        ArgumentError: ``correction`` is not an integer.
        NonFiniteError: the input contains NaN or Inf.

    Example:
        >>> X = torch.randn(8, 100)                           # fewer samples than features: singular covariances
        >>> round(frechet_distance(X, X + 0.1).item(), 4)     # 100 · 0.1²
        1.0

    Reference: as in :func:`gaussian_wasserstein`.
    """
    for name, Z in (("X", X), ("Y", Y)):
        check_matrix(Z, f"frechet_distance, {name}", "samples (*, n, d)")
        if Z.shape[-2] <= correction:
            raise ShapeError(
                f"frechet_distance, {name}: expected at least {correction + 1} samples for correction={correction}, "
                f"got {Z.shape[-2]} (shape {tuple(Z.shape)})"
            )
    check_alike(X, Y, "frechet_distance")
    with full_precision(X):

        def distance(X: Tensor, Y: Tensor) -> Tensor:
            (first, mean1), (second, mean2) = (_factor_and_mean(Z, correction) for Z in (X, Y))
            return _distance(first, second, "frechet_distance") + _square(mean1 - mean2)

        return narrow(_between(distance, (doubled(X), doubled(Y)), squared), X.dtype)


@overridable
def gaussian_transport(A: Tensor, B: Tensor, *, rtol: float | None = None, clamp: bool = False) -> Tensor:
    r"""Compute the optimal transport map between centred Gaussians with covariances A and B.

    .. math:: T=A^{-1/2}(A^{1/2}BA^{1/2})^{1/2}A^{-1/2},\qquad TAT=B .

    :math:`x\mapsto\mu_2+T(x-\mu_1)` transports one Gaussian to the other, and :math:`I-T` is the gradient of
    :func:`bures_wasserstein` in A. For a singular A, T is zero within its null space; :math:`TAT=B` then holds if B has
    no larger rank than A and its range is not orthogonal to a part of A's range. Covariances may have any scale.

    Args:
        A: positive semi-definite matrices (*, d, d), real or complex.
        B: matrices of the same size and dtype; batch dimensions broadcast.
        rtol, clamp: as in :func:`matrix_sqrt`.

    Returns:
        the map (*, d, d), Hermitian.

    Raises:
        ShapeError, AsymmetricError, IndefiniteError, NonFiniteError: as in :func:`bures_wasserstein`.

    Example:
        >>> A, B = torch.diag(torch.tensor([4.0, 1.0])), torch.diag(torch.tensor([1.0, 9.0]))
        >>> gaussian_transport(A, B)
        tensor([[0.5000, 0.0000],
                [0.0000, 3.0000]])

    Reference: Peyré and Cuturi, Computational Optimal Transport, remark 2.31.
    """
    check_pair(A, B, "gaussian_transport")
    domain = Domain.of(A, "gaussian_transport", rtol, clamp)
    with full_precision(A):
        call = lambda A, B: _transport(domain, A, B)  # noqa: E731
        T: Tensor = homogeneous(call, (widen(A), widen(B)), ((1, 0), (-0.5,)), ((0, 1), (0.5,)))
        return narrow(T, A.dtype)


def _transport(domain: Domain, A: Tensor, B: Tensor) -> Tensor:
    (R, s, V), (S, *_) = (square_root.in_double(C, domain) for C in (A, B))
    Z, _ = square_root.inverse_and_projector(R, s, V)
    factors = range_factors.polar_on_range(S @ R, domain.operation)
    right = S @ range_factors.isometry(S @ R, factors) @ Z  # T on the range of A
    both = Z @ range_factors.modulus(S @ R, factors) @ Z
    return right + right.mH - both


def _check_means(mean1: Tensor, mean2: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Raise an error unless the means are finite, of this dtype, and broadcast against ``shape``, (*, d)."""
    for name, mean, other in (("mean1", mean1, mean1), ("mean2", mean2, mean1)):
        where = f"gaussian_wasserstein, {name}"
        check_dense(mean, where)
        fits = mean.shape[-1:] == shape[-1:] and broadcast(mean.shape, other.shape, torch.Size(shape))
        if not fits or mean.dtype != dtype:
            raise ShapeError(
                f"{where}: expected a mean (*, {shape[-1]}) of {dtype} that broadcasts against the batch "
                f"{tuple(shape[:-1])}, got shape {tuple(mean.shape)} of {mean.dtype}"
            )
        check_finite(mean, where, 1)


def _roots(A: Tensor, B: Tensor, domain: Domain) -> tuple[Tensor, Tensor]:
    R, S = (doubled(Exact().root(widen(C), False, domain)) for C in (A, B))
    return R, S


def _between(
    distance: Callable[..., Tensor], inputs: Sequence[Tensor], squared: bool, trailing: Sequence[int] = ()
) -> Tensor:
    """Return a squared distance, homogeneous of degree 2 in all inputs, or its root; squares do not overflow."""

    def call(*inputs: Tensor) -> Tensor:
        return finished(distance(*inputs), squared)

    result: Tensor = homogeneous(call, inputs, ((1,) * len(inputs), (2 if squared else 1,)), trailing=trailing)
    return result


def _distance(X: Tensor, Y: Tensor, operation: str) -> Tensor:
    """Return the squared distance between factors (*, m, d) and (*, n, d) whose batch dimensions broadcast."""
    batch = common_shape(X.shape[:-2], Y.shape[:-2])
    X, Y = (Z if Z.shape[:-2] == batch else Z.expand(*batch, *Z.shape[-2:]) for Z in (X, Y))
    return bures_distance.squared_distance(X, Y, operation)


def _factor_and_mean(X: Tensor, correction: int) -> tuple[Tensor, Tensor]:
    """Return a factor of the covariance with at most d rows, and the mean (*, d)."""
    mean = X.mean(-2, keepdim=True)
    centered = (X - mean) / root_of_count(X.mT, correction)
    if X.shape[-2] > X.shape[-1]:
        centered = Exact().root(centered.mH @ centered, False, Domain("frechet_distance"))
    return centered, mean.squeeze(-2)


def _square(x: Tensor) -> Tensor:
    return (x.conj() * x).real.sum(-1)
