r"""The divided differences of a function that a gap rule implies, :math:`\hat\Gamma_{ij}=\hat K_{ij}(f_i-f_j)`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function
from ...precision import exponent_of, exponent_range, largest, ldexp, saturated
from ...solvers.products import composed, congruence
from ...solvers.symmetry import hermitian
from ..eigen.vectors import attach, within
from ..gap_rule import GapRule
from ..pairwise import differences, identity_mask
from . import divided_differences
from .domain import Spectrum
from .infinite_values import composed_values
from .scalar_functions import INV_SQRT, SQRT, Function
from .spectral_scale import Scaled, completed
from .square_root import plain_derivative


@dataclass(frozen=True)
class Implied:
    """The divided differences of f on the range that a gap rule implies.

    Attributes:
        rule: the gap rule.
        f: the function.
        support: mask (*, d) of the eigenpairs in the range that the rule keeps.
        range: mask (*, d) of the eigenpairs in the range.
        found: f and the eigenvalues at ordinary size; None if they are of ordinary size, or f cannot be scaled.
    """

    rule: GapRule
    f: Function
    support: Tensor
    range: Tensor
    found: Scaled | None = None

    def values(self, w: Tensor) -> Tensor:
        """Return f(λ) (*, d), zero outside the support."""
        return divided_differences.kept(self.f.value, w, self.support)

    def composed(self, w: Tensor, V: Tensor, values: Tensor) -> Tensor:
        """Return V f(λ) Vᴴ, given the values."""
        found = self.found
        if found is None:
            return composed_values(V, self.f, values)
        values = divided_differences.kept(found.f.value, found.spectrum.values, self.support)
        near = ldexp(composed(V, values, V.mH), found.up[..., None, None])
        return completed(near, self.f, Spectrum(w, V, self.support), found)

    def gamma(self, w: Tensor) -> Tensor:
        """Return K̂ᵢⱼfᵢ + K̂ⱼᵢfⱼ off the diagonal and f′ on it; for a skew K̂ it is exactly K̂ᵢⱼ(fᵢ − fⱼ).

        If f was scaled, K̂ still belongs to the true eigenvalues, because the thresholds of some rules are absolute.
        Both terms are clamped, if the rule saturates, so that sums of d entries cannot overflow.
        """
        K, found = within(self.rule.gaps(torch.where(self.range, w, 0)), self.range), self.found
        gamma = self._product(K, self.f, w)
        if found is not None:
            moved = ldexp(w, -found.down.unsqueeze(-1))
            moved = found.spectrum.values + (moved - moved.detach())  # with w's derivative, for second derivatives
            near = self._product(ldexp(K, found.down[..., None, None]), found.f, moved)
            half = 2.0 ** (exponent_range(w.dtype) // 2)
            within_range = (near.abs() > 1 / half) & (near.abs() < half)
            gamma = torch.where(within_range, ldexp(near, (found.up - found.down)[..., None, None]), gamma)
        return saturated(gamma, 0.25 / max(1, w.shape[-1])) if self.rule.saturates else gamma

    def _product(self, K: Tensor, f: Function, w: Tensor) -> Tensor:
        values = divided_differences.kept(f.value, w, self.support)
        slopes = divided_differences.kept(f.slope, w, self.support)
        values = saturated(values) if self.rule.saturates else values  # no difference of infinities
        steps = differences(values)  # from one end of the range to the other it overflows, and 0·∞ would be NaN
        implied = self._clamped(K * (saturated(steps) if self.rule.saturates else steps))
        if not self.rule.skew:
            implied = implied + self._clamped((K + K.mT) * values.unsqueeze(-2))
        return torch.where(identity_mask(w), slopes.unsqueeze(-1), implied)

    def _clamped(self, x: Tensor) -> Tensor:
        return saturated(x, 0.25) if self.rule.saturates else x

    def derivative(self, w: Tensor, V: Tensor, G: Tensor) -> Tensor:
        """Return V (Γ̂ ∘ Vᴴ sym(G) V) Vᴴ; for SVD-Taylor and a root the kernel may compute all of it."""
        if self.rule.series_terms and self.f in (SQRT, INV_SQRT):
            s = torch.where(self.support, w, 0).sqrt()
            return series_derivative(V, s, G, self.rule, self.f is INV_SQRT)
        gamma = self.gamma(w)
        return _bounded(lambda G: solvers.function_derivative(V, gamma, G), G, self.rule)

    def composed_derivative(self, A: Tensor, w: Tensor, V: Tensor, G: Tensor) -> Tensor:
        """Return the same from differentiable operations, in which the eigenpairs are functions of ``A``."""
        w, V = attach(A, w, V, self.rule, self.range)
        return congruence(V, self.gamma(w), hermitian(G))


def series_derivative(V: Tensor, s: Tensor, G: Tensor, rule: GapRule, inverse: bool) -> Tensor:
    """Return the derivative of a root, given s = √λ, by a rule that is a series; bounded if the rule saturates."""
    return _bounded(lambda G: plain_derivative(V, s, G, inverse, rule.series_terms), G, rule)


def _bounded(derivative: Callable[[Tensor], Tensor], G: Tensor, rule: GapRule) -> Tensor:
    """Return ``derivative(G)``, which is linear in G; a rule that saturates has a finite one where it overflows."""
    found = derivative(G)
    if not rule.saturates or not function.eager(found) or bool(torch.isfinite(found).all()):
        return found
    e = _room(G)
    return saturated(ldexp(derivative(ldexp(G, -e)), e))


def _room(G: Tensor) -> Tensor:
    """Return the exponents (*, 1, 1) by which to divide G, so that no sum in two products with eigenvectors overflows.

    Divided differences are at most the largest number divided by 4d.
    """
    return exponent_of(largest(G))[..., None, None] + (2 * math.ceil(math.log2(max(1, G.shape[-1]))) + 2)


def clamped_derivative(V: Tensor, gamma: Tensor, G: Tensor) -> Tensor:
    """Return V (Γ̂ ∘ Vᴴ sym(G) V) Vᴴ as :func:`_bounded` does, but from differentiable operations."""
    e = _room(G)
    return saturated(ldexp(congruence(V, gamma, hermitian(ldexp(G, -e))), e))
