r"""The divided differences of functions of singular values; :mod:`spectralgrad.autograd.singular_functions` uses them.

Each function here returns :class:`Weights` for descending singular values S (*, k). Where a derivative does not exist,
at a kink or at a tie across a cut, the docstring states the choice.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..precision import quotient
from .divided_differences import integer_power, on_range, power
from .pairwise import differences, norm
from .scalar_functions import Function
from .singular_functions import Weights

OfSingularValues = Callable[[Tensor], Weights]


def smooth(S: Tensor, f: Function, support: Tensor | None, tolerance: float) -> Weights:
    """Return the weights of a smooth f with f(0) = 0, or of any f on the ``support``.

    Below ``tolerance`` times the norm f(σ)/σ is replaced by f′(σ), which rounding errors of f do not reach. If f′ is
    infinite there, as for the square root, these singular values contribute nothing.
    """
    if support is not None:
        values, joint, curvature = on_range(f.differences, S, support)
        return _odd(S, values, joint, quotient(values, S, support), curvature)
    values, joint, curvature = f.differences(S)
    slope = joint.diagonal(dim1=-2, dim2=-1)
    large = tolerance * norm(S).unsqueeze(-1) < S
    ratio = torch.where(large, quotient(values, S, large), slope)
    return Weights(*(torch.where(x.isfinite(), x, 0) for x in _odd(S, values, joint, ratio, curvature)))


def threshold(S: Tensor, tau: Tensor) -> Weights:
    """Return the weights of max(σ − τ, 0), τ (*, 1) ≥ 0; at the kink σ = τ > 0 the derivative is zero."""
    above = (tau < S) | (tau == 0)
    values = torch.where(above, S - tau, 0)
    rows, columns = above.unsqueeze(-1), above.unsqueeze(-2)
    mixed = rows ^ columns
    across = quotient(differences(values), differences(S), mixed)
    joint = torch.where(mixed, across, (rows & columns).to(S.dtype))
    ratio = torch.where((tau == 0) & above, 1, quotient(values, S, above & (S > 0)))
    return _odd(S, values, joint, ratio, torch.zeros_like(S))


def leading(S: Tensor, chosen: Tensor, gaps: Tensor) -> Weights:
    """Return the weights of σ for the ``chosen`` (*, k) and 0 for the others.

    Args:
        S: singular values.
        chosen: a mask of leading, non-zero singular values.
        gaps: bounded replacements of 1/(σᵢ − σⱼ) (*, k, k), which is infinite at a tie across the cut.
    """
    share = chosen.to(S.dtype)
    values = S * share
    rows, columns = chosen.unsqueeze(-1), chosen.unsqueeze(-2)
    joint = torch.where(rows & columns, 1, gaps * differences(values))
    return _odd(S, values, joint, share, torch.zeros_like(S))


def sign(S: Tensor, support: Tensor) -> Weights:
    """Return the weights of 1 on the support and 0 elsewhere, within the matrices of the same rank."""
    values, joint, curvature = on_range(lambda w: integer_power(w, 0), S, support)
    return _odd(S, values, joint, quotient(values, S, support), curvature)


def mean_of_largest(S: Tensor, largest: Tensor) -> Weights:
    """Return the weights of 1/r for the r ``largest`` singular values and 0 for the others."""
    values = largest / largest.sum(-1, keepdim=True).clamp_min(1).to(S.dtype)
    across = largest.unsqueeze(-1) ^ largest.unsqueeze(-2)
    joint = quotient(differences(values), differences(S), across)
    return _odd(S, values, joint, quotient(values, S, largest), torch.zeros_like(S))


def slope_of_power(S: Tensor, p: float, support: Tensor) -> Weights:
    """Return the weights of :math:`p\\sigma^{p-1}` on the support, within the matrices of the same rank."""
    exponent = S.new_full(S.shape[:-1], p - 1)
    values, joint, curvature = (p * x for x in on_range(lambda w: power(w, exponent), S, support))
    return _odd(S, values, joint, quotient(values, S, support), curvature)


def _odd(S: Tensor, values: Tensor, joint: Tensor, ratio: Tensor, curvature: Tensor) -> Weights:
    """Complete the weights of an odd function from f(σ)/σ: (fᵢ + fⱼ)/(σᵢ + σⱼ) is a mean of these ratios."""
    larger = torch.maximum(S.unsqueeze(-1), S.unsqueeze(-2))
    i, j = (quotient(x, larger, larger > 0) for x in (S.unsqueeze(-1), S.unsqueeze(-2)))  # the sum cannot overflow
    mean = quotient(i * ratio.unsqueeze(-1) + j * ratio.unsqueeze(-2), i + j, larger > 0)
    apart = torch.where(larger > 0, mean, (ratio.unsqueeze(-1) + ratio.unsqueeze(-2)) / 2)
    return Weights(values, joint, apart, ratio, curvature)
