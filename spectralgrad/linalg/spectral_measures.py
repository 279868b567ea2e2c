"""Measures of a spectrum: entropy, effective and stable rank, condition number, log-determinant.

All are computed on the range, so they are finite, and so are their gradients, at rank loss and at zero. A smooth
measure is a function of :func:`svdvals`, and one that depends on the largest or smallest singular value is a quotient
of norms.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..autograd.functions.rescaling import homogeneous
from ..autograd.pairwise import norm
from ..autograd.singular.functions import Triplets, of_any_size
from ..dispatch.arguments import check_range, check_tolerance
from ..dispatch.overrides import overridable
from ..errors import check_matrix
from ..precision import full_precision, narrow, quotient, rank_tolerance, widen
from .eigenvalues import singular_values_of
from .norms import largest_value, smallest_value

__all__ = ["condition_number", "effective_rank", "log_det", "spectral_entropy", "stable_rank"]


@overridable
def spectral_entropy(M: Tensor, *, power: float = 1.0, eps: float = 0.0, rtol: float | None = None) -> Tensor:
    r"""Compute the entropy of the singular values, :math:`H=-\sum_ip_i\log p_i`.

    .. math:: p_i=\frac{\sigma_i^{\mathrm{power}}}{\sum_j\sigma_j^{\mathrm{power}}}+\mathrm{eps}

    It is zero for matrices of rank one, and the logarithm of the rank if all singular values on the range are equal.
    With ``power=2`` it is the von Neumann entropy of :math:`M^HM` divided by its trace. For a positive semi-definite
    matrix, such as a density matrix, ``power=1`` is the entropy of its eigenvalues.

    The gradient and the second derivative are exact at ties. At rank loss, where the slope of :math:`-p\log p` is
    infinite, they are those within the matrices of the same rank. The entropy of a zero matrix is 0, and so is its
    gradient.

    Args:
        M: matrices (*, m, n), real or complex; half types are computed in float32.
        power: a positive number; 2 for the eigenvalues of :math:`M^HM`.
        eps: a number from 0 to 1 that is added to each of the min(m, n) shares, as in RankMe; see
            :func:`effective_rank`.
        rtol: singular values up to ``rtol`` times the largest count as zero; by default, those that rounding errors
            could explain, :math:`\epsilon\max(8,3\sqrt{\max(m,n)})`.

    Returns:
        the entropies (*,), real, in nats.

    Raises:
        ArgumentError: ``power``, ``eps`` or ``rtol`` is out of range.
        NonFiniteError: the input contains NaN or Inf.

    Example:
        >>> spectral_entropy(torch.diag(torch.tensor([2.0, 2.0, 0.0]))).exp()
        tensor(2.)

    Reference: Roy and Vetterli, The effective rank: a measure of effective dimensionality (2007).
    """
    entropy, _ = _entropy(M, "spectral_entropy", power, eps, rtol)
    return narrow(entropy, M.dtype)


@overridable
def effective_rank(M: Tensor, *, power: float = 1.0, eps: float = 0.0, rtol: float | None = None) -> Tensor:
    r"""Compute the effective rank :math:`e^H`, with the :func:`spectral_entropy` H of the singular values.

    It is a rank that counts small singular values less than large ones: between 1 and the rank, equal to the rank if
    all singular values on the range are equal, and smooth. As a metric it shows the collapse of representations;
    maximised or minimised it is a loss. The effective rank of a zero matrix is 0, and so is its gradient.

    ===================================== =====================================
    effective rank of Roy and Vetterli    ``effective_rank(M)``
    RankMe of embeddings Z (n, d)         ``effective_rank(Z, eps=1e-7)``
    rank of a covariance (Diff-eRank)     ``effective_rank(Z, power=2)``
    ===================================== =====================================

    Args:
        M, power, eps, rtol: as in :func:`spectral_entropy`.

    Returns:
        the effective ranks (*,), real.

    Raises:
        ArgumentError, NonFiniteError: as in :func:`spectral_entropy`.

    Example:
        >>> Z = torch.diag(torch.tensor([1.0, 1.0, 0.0])).requires_grad_()
        >>> effective_rank(Z).detach(), effective_rank(Z, eps=1e-7) > 2
        (tensor(2.), tensor(True))
        >>> torch.autograd.grad(effective_rank(Z), Z)[0].isfinite().all()
        tensor(True)

    Reference: Roy and Vetterli, The effective rank (2007); Garrido et al., RankMe: Assessing the downstream performance
    of pretrained self-supervised representations by their rank (2023).
    """
    entropy, some = _entropy(M, "effective_rank", power, eps, rtol)
    return narrow(torch.where(some, entropy.exp(), 0), M.dtype)


@overridable
def stable_rank(M: Tensor) -> Tensor:
    r"""Compute the stable rank :math:`\lVert M\rVert_F^2/\lVert M\rVert_2^2=\sum_i\sigma_i^2/\sigma_1^2`.

    It is between 1 and the rank, and changes little if M does, so no tolerance is needed. The derivative exists
    where the largest singular value is a single one; elsewhere the gradient uses the subgradient of the norm that
    :func:`spectral_norm` describes. The stable rank of a zero matrix is 0, and so is its gradient.

    Args:
        M: matrices (*, m, n), real or complex; half types are computed in float32.

    Returns:
        the stable ranks (*,), real.

    Raises:
        NonFiniteError: the input contains NaN or Inf.

    Example:
        >>> stable_rank(torch.diag(torch.tensor([2.0, 1.0, 1.0])))
        tensor(1.5000)

    Reference: Rudelson and Vershynin, Sampling from large matrices (2007).
    """
    check_matrix(M, "stable_rank")

    def measure(M: Tensor, triplets: Triplets) -> Tensor:
        spectral = largest_value(M, triplets)
        unit = M / torch.where(spectral > 0, spectral, 1)[..., None, None]
        return (unit.conj() * unit).real.sum((-2, -1))

    return _of_degree_zero(M, "stable_rank", measure)


@overridable
def condition_number(M: Tensor, *, rtol: float | None = None) -> Tensor:
    r"""Compute the condition number on the range, :math:`\lVert M\rVert_2\lVert M^+\rVert_2=\sigma_1/\sigma_r`.

    :math:`\sigma_r` is the smallest singular value that is not zero up to rounding errors, so the result is finite for
    singular matrices, where :func:`torch.linalg.cond` is infinite. It jumps where the rank changes. Where several
    singular values are the largest or the smallest, no derivative exists; the gradient treats them alike, and does not
    depend on the choice of their vectors. The condition number of a zero matrix is 0, and so is its gradient.

    Args:
        M: matrices (*, m, n), real or complex; half types are computed in float32.
        rtol: as in :func:`spectral_entropy`.

    Returns:
        the condition numbers (*,), real.

    Raises:
        ArgumentError: ``rtol`` is out of range.
        NonFiniteError: the input contains NaN or Inf.

    Example:
        >>> condition_number(torch.diag(torch.tensor([6.0, 3.0, 0.0])))
        tensor(2.)

    Reference: Higham, Accuracy and stability of numerical algorithms (2002), chapter 6.
    """
    check_matrix(M, "condition_number")
    check_tolerance(rtol, "condition_number")
    tolerance = _tolerance(M, rtol)

    def measure(M: Tensor, triplets: Triplets) -> Tensor:
        support = _support(triplets.S, tolerance)
        return quotient(largest_value(M, triplets), smallest_value(M, triplets, support), support.any(-1))

    return _of_degree_zero(M, "condition_number", measure)


@overridable
def log_det(M: Tensor, *, rtol: float | None = None) -> Tensor:
    r"""Compute the log-determinant on the range, :math:`\sum_{i\le r}\log\sigma_i`.

    For an invertible matrix it is :math:`\log\lvert\det M\rvert`, for a positive semi-definite one the logarithm of the
    pseudo-determinant, and for a tall matrix half of the one of :math:`M^HM`. The gradient is the pseudo-inverse,
    :math:`(M^+)^H`, and the second derivative is exact at ties and within the matrices of the same rank. The value
    jumps where the rank changes; the log-determinant of a zero matrix is 0, and so is its gradient.

    Args:
        M: matrices (*, m, n), real or complex; half types are computed in float32.
        rtol: as in :func:`spectral_entropy`.

    Returns:
        the log-determinants (*,), real.

    Raises:
        ArgumentError: ``rtol`` is out of range.
        NonFiniteError: the input contains NaN or Inf.

    Example:
        >>> M = torch.diag(torch.tensor([4.0, 2.0, 0.0])).requires_grad_()
        >>> value = log_det(M)
        >>> round(value.exp().item(), 4)
        8.0
        >>> torch.autograd.grad(value, M)[0].diagonal()
        tensor([0.2500, 0.5000, 0.0000])

    Reference: Holbrook, Differentiating the pseudo determinant (2018).
    """
    check_matrix(M, "log_det")
    check_tolerance(rtol, "log_det")
    tolerance = _tolerance(M, rtol)

    def measure(M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        S = singular_values_of(M, "log_det")
        support = _support(S, tolerance)
        rank = support.sum(-1).to(S.dtype)
        return torch.where(support, S, 1).log().sum(-1), rank, torch.ones_like(rank)

    with full_precision(M):
        value, rank, root = homogeneous(measure, (widen(M),), ((1,), (0, 0, 0.5)))  # the root of the scale
        return narrow(value + 2 * rank * root.log(), M.dtype)


def _entropy(M: Tensor, operation: str, power: float, eps: float, rtol: float | None) -> tuple[Tensor, Tensor]:
    """Return the entropies (*,) in working precision, and which matrices are not zero."""
    check_matrix(M, operation)
    check_range(power, "power", operation, 0, ends="()")
    check_range(eps, "eps", operation, 0, 1, ends="[]")
    check_tolerance(rtol, operation)
    tolerance = _tolerance(M, rtol)

    def measure(M: Tensor) -> tuple[Tensor, Tensor]:
        S = singular_values_of(M, operation)
        support = _support(S, tolerance)
        some = support.any(-1)
        relative = torch.where(support, S, 1) / torch.where(some, norm(S), 1).unsqueeze(-1)
        shares = torch.where(support, relative.pow(power), 0)
        p = quotient(shares, shares.sum(-1, keepdim=True), support) + eps
        terms = torch.where(p > 0, p * torch.where(p > 0, p, 1).log(), 0)
        return torch.where(some, -terms.sum(-1), 0), some.to(S.dtype)

    with full_precision(M):
        entropy, some = homogeneous(measure, (widen(M),), ((1,), (0, 0)))
    return entropy, some > 0


def _of_degree_zero(M: Tensor, operation: str, measure: Callable[[Tensor, Triplets], Tensor]) -> Tensor:
    """Return a measure that does not depend on the scale of the matrices, from their singular value decomposition."""

    def call(M: Tensor) -> Tensor:
        return of_any_size(M, operation, measure, values_only=True)

    with full_precision(M):
        result: Tensor = homogeneous(call, (widen(M),), ((1,), (0,)))
        return narrow(result, M.dtype)


def _tolerance(M: Tensor, rtol: float | None) -> float:
    return rank_tolerance(max(M.shape[-2:]), M.dtype) if rtol is None else float(rtol)


def _support(S: Tensor, tolerance: float) -> Tensor:
    """The mask (*, k) of the singular values on the range."""
    S = S.detach()
    return S > tolerance * norm(S).unsqueeze(-1)
