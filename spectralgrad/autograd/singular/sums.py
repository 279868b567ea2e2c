r"""Sums of functions of singular values, :math:`\sum_ig(\sigma_i)`, as norms are.

Their gradient is :math:`U\,\mathrm{diag}g'(\sigma)\,V^H`, a function of singular values
(:mod:`spectralgrad.autograd.singular.functions`), and the second derivative is the derivative of that.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ...dispatch import function, observation
from ...precision import full_precision
from .. import existence
from .functions import Triplets, Weights, compose, composed


def sum_of(M: Tensor, total: Tensor, triplets: Triplets, slopes_of: Callable[[], Weights]) -> Tensor:
    """Return ``total`` (*,), a sum of g(σ), as a function of ``M``; its gradient is U g′(S) Vᴴ with the slopes g′.

    The slopes are computed only if a gradient is required.
    """
    if function.needs_no_gradient(M):
        return total
    slopes = slopes_of()
    lazily = function.reverse_only(M)
    last = (None, None, None, slopes) if lazily else (*slopes.pairs(), slopes.curvature(), None)
    result: Tensor = function.apply(_Sum, M, total, *triplets, slopes.values, *last)
    return result


class _Sum(function.DerivativeRule):
    """A sum of g(σ). In reverse mode only g′ is computed, and what derivatives of g′ need is left to ``lazy``."""

    keeps = "M U S Vh values joint outer curvature lazy"

    @staticmethod
    def forward(
        M: Tensor,
        total: Tensor,
        U: Tensor,
        S: Tensor,
        Vh: Tensor,
        values: Tensor,
        joint: Tensor | None,
        outer: Tensor | None,
        curvature: Tensor | None,
        lazy: Weights | None,
    ) -> Tensor:
        return total.clone()

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        M, U, S, Vh, *slopes = ctx.saved_tensors
        if ctx.lazy is not None and ctx.lazy.kinks is not None and observation.wanted():
            observation.tell(ctx, lambda: existence.of_kinks(ctx.lazy.kinks(), g.unsqueeze(-1)))
        with full_precision(U):
            if function.differentiating():
                gM = g[..., None, None] * _gradient(M, Triplets(U, S, Vh), ctx.lazy, *slopes)
            else:
                gM = composed(U, g.unsqueeze(-1) * slopes[0], Vh)
            return gM, *[None] * 9

    @staticmethod
    def jvp(ctx, dM, *_):  # type: ignore[no-untyped-def]
        M, U, S, Vh, *slopes = ctx.saved_tensors
        with full_precision(U):
            return (_gradient(M, Triplets(U, S, Vh), ctx.lazy, *slopes).conj() * dM).real.sum((-2, -1))


def _gradient(M: Tensor, triplets: Triplets, lazy: Weights | None, *slopes: Tensor) -> Tensor:
    values, joint, outer, curvature = slopes
    return compose(M, triplets, lazy or Weights(values, lambda: (joint, outer), lambda: curvature))
