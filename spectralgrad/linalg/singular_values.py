"""Functions of singular values: any function, the soft threshold, and the best approximation of a given rank."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..autograd import decompositions
from ..autograd.functions import user_functions
from ..autograd.functions.divided_differences import Scalar
from ..autograd.pairwise import norm
from ..autograd.singular import weights as singular_weights
from ..autograd.singular.functions import (
    Triplets,
    Weights,
    compose,
    compose_known,
    compose_learning,
    decomposed,
    of_any_size,
)
from ..dispatch import function
from ..dispatch.arguments import check_count, check_range, check_tolerance
from ..dispatch.overrides import overridable
from ..errors import check_matrix
from ..native.derivative_calls import SingularScalar
from ..precision import full_precision, narrow, number, rank_tolerance, widen
from ..rules import Pade
from .matrix_functions import check_of_batch

__all__ = ["low_rank", "singular_value_function", "singular_value_threshold"]


@overridable
def singular_value_function(M: Tensor, f: Scalar, df: Scalar | None = None, *, rtol: float | None = None) -> Tensor:
    r"""Apply a smooth function to the singular values, :math:`F(M)=U\,\mathrm{diag}f(\sigma)\,V^H`, for any shape.

    .. math:: \bar M=U\Bigl(\frac{f_i-f_j}{\sigma_i-\sigma_j}\,P^h_{ij}
              +\frac{f_i+f_j}{\sigma_i+\sigma_j}\,P^s_{ij}\Bigr)V^H+(I-UU^H)\bar F\,V\,\mathrm{diag}(f_i/\sigma_i)\,V^H,
              \qquad P=U^H\bar FV

    with the Hermitian part :math:`P^h` and the skew part :math:`P^s` of P, for m ≥ n. No gap is divided by: at equal
    singular values the first quotient is :math:`f'(\sigma)`, and at zero all of them are :math:`f'(0)`. First and
    second derivatives are exact at ties; at rank loss the first is exact, and the second if :math:`f''(0)=0` (otherwise
    it does not exist, and the part that jumps is left out). f may depend on trainable parameters, which then receive
    their gradient (second derivatives are exact only where the singular values are distinct in that case). For a second
    derivative f″ is evaluated in the backward pass, so f must still be the same function then.

    Args:
        M: matrices (*, m, n), real or complex; half types are computed in float32.
        f: elementwise function of a real tensor of any shape, with f(0) = 0.
        df: its derivative, also elementwise; by default torch differentiates ``f``.
        rtol: if given, f is applied on the range only (singular values larger than ``rtol`` times the norm), and the
            derivative is that within the matrices of the same rank. f(0) may then be anything.

    Returns:
        F(M) (*, m, n).

    Raises:
        ArgumentError: ``f`` or ``df`` is not elementwise, or f(0) is not zero.
        NonFiniteError: the input contains NaN or Inf.

    Example:
        >>> M = torch.eye(2, 3, requires_grad=True)
        >>> singular_value_function(M, torch.tanh).sum().backward()
        >>> M.grad                         # tanh'(1) = 0.42 for the symmetric part, tanh(1) = 0.76 for the rest
        tensor([[0.4200, 0.4200, 0.7616],
                [0.4200, 0.4200, 0.7616]])

    Reference: Noferini, A formula for the Fréchet derivative of a generalized matrix function (2017).
    """
    check_matrix(M, "singular_value_function")
    check_tolerance(rtol, "singular_value_function")
    scalar = user_functions.smooth(f, df, "singular_value_function", "singular value")
    tolerance = rank_tolerance(max(M.shape[-2:]), M.dtype)

    def weights(S: Tensor) -> Weights:
        support = None if rtol is None else rtol * norm(S).unsqueeze(-1) < S
        found = singular_weights.smooth(S, scalar, support, tolerance)
        if support is None:
            user_functions.check_origin(f, S, "singular_value_function")
        return found

    with full_precision(M):
        wide = widen(M)
        return narrow(_composed(wide, decomposed(wide, "singular_value_function"), weights), M.dtype)


@overridable
def singular_value_threshold(M: Tensor, tau: float | Tensor) -> Tensor:
    r"""Shrink the singular values by ``tau``, :math:`U\,\mathrm{diag}\max(\sigma-\tau,0)\,V^H`.

    It is the proximal operator of :math:`\tau\lVert\cdot\rVert_*`, the step of matrix completion and robust PCA. The
    derivative in M is exact at ties and at rank loss, and the map is a contraction. It has a kink where
    :math:`\sigma_i=\tau`: there the derivative from below, zero, is used.

    Args:
        M: matrices (*, m, n).
        tau: the threshold; a tensor must broadcast against the batch (*,) and may require a gradient. It must not be
            negative; negative entries of a tensor count as zero.

    Returns:
        the matrix (*, m, n) with smaller singular values.

    Raises:
        ArgumentError: ``tau`` is a negative number.
        ShapeError: ``tau`` is a complex tensor or does not broadcast against the batch.
        NonFiniteError: ``M`` or ``tau`` contains NaN or Inf.

    Example:
        >>> tau = torch.tensor(2.0, requires_grad=True)
        >>> shrunk = singular_value_threshold(torch.diag(torch.tensor([5.0, 3.0, 1.0])), tau)
        >>> shrunk.diagonal().detach()
        tensor([3., 1., 0.])
        >>> torch.autograd.grad(shrunk.sum(), tau)[0]
        tensor(-2.)

    Reference: Cai, Candès and Shen, A singular value thresholding algorithm for matrix completion (2010).
    """
    check_matrix(M, "singular_value_threshold")
    if isinstance(tau, Tensor):
        check_of_batch(tau, "tau", M, "singular_value_threshold")
    else:
        check_range(tau, "tau", "singular_value_threshold", 0)
    level = number(tau, widen(M).real).clamp_min(0).unsqueeze(-1)
    known = None if isinstance(tau, Tensor) else SingularScalar("threshold", float(tau), 0.0)
    return _homogeneous(M, "singular_value_threshold", known, singular_weights.threshold, level)


@overridable
def low_rank(M: Tensor, k: int) -> Tensor:
    r"""Compute the best approximation of rank k, :math:`\sum_{i\le k}\sigma_iu_iv_i^H` (Eckart–Young).

    The derivative is exact, also at equal singular values on the same side of the cut. At a tie across the cut the
    approximation is not unique; the gradient is then bounded as in :class:`Pade`. If M has a lower rank than k, the
    derivative is that within the matrices of its rank.

    Args:
        M: matrices (*, m, n).
        k: the rank, from 0 to min(m, n).

    Returns:
        the approximation (*, m, n).

    Raises:
        ArgumentError: ``k`` is not an integer from 0 to min(m, n).

    Example:
        >>> low_rank(torch.diag(torch.tensor([3.0, 1.0, 2.0])), 2).diagonal()
        tensor([3., 0., 2.])

    Reference: Eckart and Young, The approximation of one matrix by another of lower rank (1936).
    """
    check_matrix(M, "low_rank")
    most = min(M.shape[-2:])
    check_count(k, "k", "low_rank", 0, most)
    tolerance = rank_tolerance(max(M.shape[-2:]), M.dtype)

    def weights(S: Tensor) -> Weights:
        leading = torch.arange(most, device=S.device) < int(k)
        chosen = leading & (tolerance * norm(S).unsqueeze(-1) < S)
        return singular_weights.leading(S, chosen, Pade().gaps)

    return _homogeneous(M, "low_rank", SingularScalar("leading", float(k), tolerance), weights)


def _homogeneous(
    M: Tensor, operation: str, known: SingularScalar | None, weights: Callable[..., Weights], *levels: Tensor
) -> Tensor:
    """Return U f(S) Vᴴ for a function of degree one in the singular values and the ``levels`` (*, 1).

    ``known`` is the function in the kernel, if the kernel has it.
    """

    def call(M: Tensor, triplets: Triplets, *given: Tensor) -> Tensor:
        if known is not None and all(x is y for x, y in zip(levels, given, strict=True)):  # unless they are rescaled
            return compose_known(M, triplets, known, lambda S: weights(S, *given))
        return _composed(M, triplets, lambda S: weights(S, *given))

    with full_precision(M):
        return narrow(of_any_size(widen(M), operation, call, *levels), M.dtype)


def _composed(M: Tensor, triplets: Triplets, weights: singular_weights.OfSingularValues) -> Tensor:
    """Return U f(S) Vᴴ for the function that ``weights`` describes."""
    found = weights(triplets.S)
    if not function.tracked(found.values):
        return compose(M, triplets, found)
    triplets = Triplets(*decompositions.triplets(M, Pade()))
    return compose_learning(M, triplets, weights(triplets.S))
