"""Norms of singular values: nuclear, Schatten and spectral."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .. import solvers
from ..autograd.pairwise import norm
from ..autograd.singular import weights as singular_weights
from ..autograd.singular.functions import Triplets, Weights, of_any_size
from ..autograd.singular.sums import sum_of
from ..dispatch.arguments import check_range
from ..dispatch.overrides import overridable, shortened
from ..errors import check_matrix
from ..native.derivative_calls import SingularScalar
from ..precision import any_infinite, full_precision, narrow, rank_tolerance, resolved, widen

__all__ = ["nuclear_norm", "schatten_norm", "spectral_norm"]


def _at_once(M: Tensor, operation: str, of_values: Callable[[Tensor], Tensor]) -> Tensor | None:
    """Return a function of the singular values if they take one kernel call and are finite, otherwise None."""
    S = solvers.svdvals.at_once(M, operation)
    return None if S is None or any_infinite(S) else of_values(S)


@shortened(lambda M: _at_once(M, "nuclear_norm", _sum))
def nuclear_norm(M: Tensor) -> Tensor:
    r"""Compute the nuclear norm :math:`\lVert M\rVert_*=\sum_i\sigma_i`, the sum of the singular values.

    Its gradient is the polar factor on the range, :math:`U_rV_r^H`. At full rank this is the derivative, and at rank
    loss, where none exists, the subgradient of minimum norm. The second derivative differentiates this factor within
    the matrices of the same rank, and is exact at ties.

    Args:
        M: matrices (*, m, n), real or complex; half types are computed in float32.

    Returns:
        the norms (*,), real.

    Raises:
        NonFiniteError: the input contains NaN or Inf.

    Example:
        >>> M = torch.diag(torch.tensor([3.0, 0.0])).requires_grad_()
        >>> nuclear_norm(M).backward()
        >>> M.grad                                   # torch.linalg.matrix_norm(M, "nuc") adds u₂v₂ᵀ of its choice
        tensor([[1., 0.],
                [0., 0.]])

    Reference: Watson, Characterization of the subdifferential of some matrix norms (1992).
    """
    check_matrix(M, "nuclear_norm")
    return _norm(M, "nuclear_norm", _nuclear)


@shortened(lambda M: _at_once(M, "spectral_norm", norm))
def spectral_norm(M: Tensor) -> Tensor:
    r"""Compute the spectral norm :math:`\lVert M\rVert_2=\sigma_1`, the largest singular value.

    Its gradient is :math:`u_1v_1^H`. Where r singular values equal the largest, no derivative exists; the subgradient
    of minimum norm, :math:`\tfrac1r\sum_{i\le r}u_iv_i^H`, does not depend on the choice of the vectors. For M = 0 it
    is zero.

    Args:
        M: matrices (*, m, n), real or complex; half types are computed in float32.

    Returns:
        the norms (*,), real.

    Raises:
        NonFiniteError: the input contains NaN or Inf.

    Example:
        >>> M = torch.eye(2, requires_grad=True)
        >>> spectral_norm(M).backward()
        >>> M.grad
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]])

    Reference: as in :func:`nuclear_norm`.
    """
    check_matrix(M, "spectral_norm")
    return _norm(M, "spectral_norm", largest_value)


@overridable
def schatten_norm(M: Tensor, p: float) -> Tensor:
    r"""Compute the Schatten norm :math:`\lVert M\rVert_p=(\sum_i\sigma_i^p)^{1/p}`.

    p = 1 is the nuclear, 2 the Frobenius and infinity the spectral norm. The gradient is

    .. math:: \lVert M\rVert_p^{1-p}\;U\,\mathrm{diag}(\sigma_i^{p-1})\,V^H,

    exact at ties and rank loss for p > 1, and zero for M = 0. The second derivative is exact at ties; for p < 2 it does
    not exist at rank loss, and is that within the matrices of the same rank.

    Args:
        M: matrices (*, m, n), real or complex; half types are computed in float32.
        p: a number from 1 to infinity.

    Returns:
        the norms (*,), real.

    Raises:
        ArgumentError: ``p`` is not a number from 1 to infinity.
        NonFiniteError: the input contains NaN or Inf.

    Example:
        >>> schatten_norm(torch.diag(torch.tensor([3.0, 4.0])), 2)
        tensor(5.)

    Reference: as in :func:`nuclear_norm`.
    """
    check_matrix(M, "schatten_norm")
    check_range(p, "p", "schatten_norm", 1, ends="[]")
    if p in (1, math.inf):
        return _norm(M, "schatten_norm", _nuclear if p == 1 else largest_value)
    return _norm(M, "schatten_norm", lambda X, triplets: _schatten(X, triplets, float(p)))


Norm = Callable[[Tensor, Triplets], Tensor]


def _norm(M: Tensor, operation: str, of: Norm) -> Tensor:
    with full_precision(M):
        wide = widen(M)
        return narrow(of_any_size(wide, operation, of, values_only=True), M.dtype)


def _tolerance(M: Tensor) -> float:
    return rank_tolerance(max(M.shape[-2:]), M.dtype)


def _support(M: Tensor, S: Tensor) -> Tensor:
    """The mask (*, k) of the singular values that are not zero up to rounding error."""
    return _tolerance(M) * norm(S).unsqueeze(-1) < S


def _sum(S: Tensor) -> Tensor:
    return S.sum(-1)


def _nuclear(M: Tensor, triplets: Triplets) -> Tensor:
    S, known = triplets.S, SingularScalar("support", 0.0, _tolerance(M))
    return sum_of(M, _sum(S), triplets, lambda: singular_weights.sign(S, _support(M, S)), known)


def largest_value(M: Tensor, triplets: Triplets) -> Tensor:
    """Return the largest singular values (*,); equal ones share the gradient."""
    S, tolerance = triplets.S, _tolerance(M)

    def slopes() -> Weights:
        return singular_weights.mean_of_largest(S, ((1 - tolerance) * norm(S).unsqueeze(-1) <= S) & (S > 0))

    return sum_of(M, norm(S), triplets, slopes, SingularScalar("largest", 0.0, tolerance))


def smallest_value(M: Tensor, triplets: Triplets, support: Tensor) -> Tensor:
    """Return the smallest singular values (*,) on the ``support`` (*, k); equal ones share the gradient."""
    S, resolution = triplets.S, _tolerance(M) * norm(triplets.S)
    least = torch.where(support, S, torch.inf).amin(-1) if S.shape[-1] else norm(S)

    def slopes() -> Weights:
        return singular_weights.mean_of_largest(S, support & (S <= (least + resolution).unsqueeze(-1)))

    return sum_of(M, least, triplets, slopes)


def _schatten(M: Tensor, triplets: Triplets, p: float) -> Tensor:
    """The norm for 1 < p < ∞, of the matrix divided by its spectral norm, so that no power overflows or underflows."""
    U, S, Vh = triplets
    size = torch.where(norm(S) > 0, resolved(norm(S)), 1)
    M, S = M / size[..., None, None], S / size.unsqueeze(-1)
    if p == 2:  # the squares are smooth at rank loss too, and need no decomposition
        total = (M.conj() * M).real.sum((-2, -1))
    else:
        slopes = lambda: singular_weights.slope_of_power(S, p, _support(M, S))  # noqa: E731
        total = sum_of(M, S.pow(p).sum(-1), Triplets(U, S, Vh), slopes)
    return size * torch.where(total > 0, torch.where(total > 0, total, 1).pow(1 / p), 0)
