r"""The divided differences of functions of singular values; :mod:`spectralgrad.autograd.singular.functions` uses them.

Each function here returns :class:`Weights` for descending singular values S (*, k). Where a derivative does not exist,
at a kink or at a tie across a cut, the docstring states the choice.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function
from ...precision import quotient
from ..functions.divided_differences import Scalar, inside, integer_power, kept, power, restricted
from ..functions.rescaling import normalized
from ..functions.scalar_functions import log_over
from ..functions.user_functions import UserFunction
from ..pairwise import differences, norm
from .functions import Weights

OfSingularValues = Callable[[Tensor], Weights]
Pairs = tuple[Tensor, Tensor]


def smooth(S: Tensor, f: UserFunction, support: Tensor | None, tolerance: float) -> Weights:
    """Return the weights of a smooth f with f(0) = 0, or of any f on the ``support``.

    Below ``tolerance`` times the norm f(σ)/σ is replaced by f′(σ), which rounding errors of f do not reach. If f′ is
    infinite there, as for the square root, the derivative is that within the matrices of the same rank.
    """
    if support is not None:
        return _on_range(S, support, f.value, lambda w: f.divided(w, f.value(w)), f.curvature)
    values = f.value(S)

    def pairs() -> Pairs:
        by_kernel = solvers.divided_differences(S, values, f.plain_slope, tolerance, finite=True)
        if by_kernel is not None:
            return by_kernel
        joint = f.divided(S, values)
        large = tolerance * norm(S).unsqueeze(-1) < S
        slope = joint.diagonal(dim1=-2, dim2=-1)
        return _finite(joint), _finite(torch.where(large, quotient(values, S, large), slope))

    return Weights(_finite(values), pairs, lambda: _finite(f.curvature(S)))


def threshold(S: Tensor, tau: Tensor) -> Weights:
    """Return the weights of max(σ − τ, 0), τ (*, 1) ≥ 0; at the kink σ = τ > 0 the derivative is zero."""
    above = (tau < S) | (tau == 0)
    values = torch.where(above, S - tau, 0)

    def pairs() -> Pairs:
        rows, columns = above.unsqueeze(-1), above.unsqueeze(-2)
        mixed = rows ^ columns
        across = quotient(differences(values), differences(S), mixed)
        joint = torch.where(mixed, across, (rows & columns).to(S.dtype))
        return joint, torch.where((tau == 0) & above, 1, quotient(values, S, above & (S > 0)))

    def kinks() -> Tensor:
        return (tau > 0) & ((S - tau).abs() <= 64 * torch.finfo(S.dtype).eps * norm(S).unsqueeze(-1))

    return Weights(values, pairs, lambda: torch.zeros_like(S), kinks)


def leading(S: Tensor, chosen: Tensor, gaps: Scalar) -> Weights:
    """Return the weights of σ for the ``chosen`` (*, k) and 0 for the others.

    Args:
        S: singular values.
        chosen: a mask of leading, non-zero singular values.
        gaps: returns bounded replacements of 1/(σᵢ − σⱼ) (*, k, k), which is infinite at a tie across the cut.
    """
    share = chosen.to(S.dtype)
    values = S * share

    def pairs() -> Pairs:
        rows, columns = chosen.unsqueeze(-1), chosen.unsqueeze(-2)
        size = normalized(S)
        return torch.where(rows & columns, 1, gaps(size) * differences(size * share)), share

    return Weights(values, pairs, lambda: torch.zeros_like(S))


def sign(S: Tensor, support: Tensor) -> Weights:
    """Return the weights of 1 on the support and 0 elsewhere, within the matrices of the same rank."""
    found = _on_range(S, support, torch.ones_like, lambda w: integer_power(w, 0)[1], torch.zeros_like)
    return Weights(found.values, found.pairs, found.curvature, lambda: ~support)


def inverse(S: Tensor, support: Tensor) -> Weights:
    r"""Return the weights of the pseudo-inverse: of 1/σ on the support, within the matrices of the same rank.

    Γ⁻ is :math:`-1/(\sigma_i\sigma_j)` within the support, and :math:`1/\sigma^2` of the one that is in it otherwise.
    """
    values = quotient(1, S, support)

    def pairs() -> Pairs:
        squares, joint = values.square(), -values.unsqueeze(-1) * values.unsqueeze(-2)
        if function.eager(S, support) and bool(support.all()):
            return joint, squares
        across = support.unsqueeze(-1) ^ support.unsqueeze(-2)
        return torch.where(across, squares.unsqueeze(-1) + squares.unsqueeze(-2), joint), squares

    return Weights(values, pairs, lambda: 2 * values**3)


def mean_of_largest(S: Tensor, largest: Tensor) -> Weights:
    """Return the weights of 1/r for the r ``largest`` singular values and 0 for the others."""
    values = largest / largest.sum(-1, keepdim=True).clamp_min(1).to(S.dtype)

    def pairs() -> Pairs:
        across = largest.unsqueeze(-1) ^ largest.unsqueeze(-2)
        return quotient(differences(values), differences(S), across), quotient(values, S, largest)

    return Weights(values, pairs, lambda: torch.zeros_like(S), lambda: _shared(largest))


def _shared(largest: Tensor) -> Tensor:
    """The mask (*, k) of matrices without a single largest singular value."""
    return (largest.sum(-1, keepdim=True) != 1).expand_as(largest)


def slope_of_power(S: Tensor, p: float, support: Tensor) -> Weights:
    """Return the weights of :math:`p\\sigma^{p-1}` on the support, within the matrices of the same rank."""
    exponent = S.new_full(S.shape[:-1], p - 1)
    return _on_range(
        S,
        support,
        lambda w: p * w.pow(p - 1),
        lambda w: p * power(w, exponent)[1],
        lambda w: p * (p - 1) * (p - 2) * w.pow(p - 3),
    )


def slope_of_squared_logarithm(S: Tensor, support: Tensor) -> Weights:
    """Return the weights of :math:`8\\log(\\sigma)/\\sigma` on the support, within the matrices of the same rank."""
    f = log_over(S.new_zeros(S.shape[:-1]))
    gamma, curvature = (lambda w, part=part: 8 * f.differences(w)[part] for part in (1, 2))
    return _on_range(S, support, lambda w: 8 * f.value(w), gamma, curvature)


def _on_range(S: Tensor, support: Tensor, f: Scalar, gamma: Scalar, curvature: Scalar) -> Weights:
    """Return the weights of f on the support, within the matrices of the same rank.

    Args:
        S: singular values.
        support: the mask (*, k) of the range.
        f, curvature: the function and its second derivative, elementwise.
        gamma: returns the divided differences (*, k, k) of f.
    """
    values = kept(f, S, support)

    def pairs() -> Pairs:
        joint = restricted(gamma(torch.where(support, S, inside(S))), values, S, support)
        return joint, quotient(values, S, support)

    return Weights(values, pairs, lambda: kept(curvature, S, support))


def _finite(x: Tensor) -> Tensor:
    """Replace what is not finite by zero."""
    return x.nan_to_num(0.0, 0.0, 0.0)
