r"""Sums of functions of singular values, :math:`\sum_ig(\sigma_i)`, as norms are.

Their gradient is :math:`U\,\mathrm{diag}g'(\sigma)\,V^H`, a function of singular values
(:mod:`spectralgrad.autograd.singular.functions`), and the second derivative is the derivative of that.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ... import solvers
from ...dispatch import function, observation
from ...native.derivative_calls import SingularScalar
from ...precision import full_precision
from .. import existence
from .functions import Triplets, Weights, compose, composed


def sum_of(
    M: Tensor, total: Tensor, triplets: Triplets, slopes_of: Callable[[], Weights], known: SingularScalar | None = None
) -> Tensor:
    """Return ``total`` (*,), a sum of g(σ), as a function of ``M``; its gradient is U g′(S) Vᴴ with the slopes g′.

    The slopes are computed only if a gradient is required, and in reverse mode by the backward pass, or by the kernel
    if they are ``known`` to it.
    """
    if function.needs_no_gradient(M):
        return total
    if function.reverse_only(M):
        result: Tensor = function.apply(_Sum, M, total, *triplets, None, None, None, None, slopes_of, known)
        return result
    slopes = slopes_of()
    result = function.apply(_Sum, M, total, *triplets, slopes.values, *slopes.pairs(), slopes.curvature(), None, None)
    return result


class _Sum(function.DerivativeRule):
    """A sum of g(σ). In reverse mode g′ and what its derivatives need are left to ``lazy``, which returns them."""

    keeps = "M U S Vh values joint outer curvature lazy known"

    @staticmethod
    def forward(
        M: Tensor,
        total: Tensor,
        U: Tensor,
        S: Tensor,
        Vh: Tensor,
        values: Tensor | None,
        joint: Tensor | None,
        outer: Tensor | None,
        curvature: Tensor | None,
        lazy: Callable[[], Weights] | None,
        known: SingularScalar | None,
    ) -> Tensor:
        return total.clone()

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        M, U, S, Vh, *kept = ctx.saved_tensors
        if ctx.known is not None and not (function.differentiating() or observation.wanted()):
            gM = solvers.function_of_values(ctx.known, U, S, Vh, g)
            if gM is not None:
                return gM, *[None] * 10
        slopes = _weights(*kept) if ctx.lazy is None else ctx.lazy()
        kinks = slopes.kinks
        if kinks is not None and observation.wanted():
            observation.tell(ctx, lambda: existence.of_kinks(kinks(), g.unsqueeze(-1)))
        with full_precision(U):
            if function.differentiating():
                gM = g[..., None, None] * compose(M, Triplets(U, S, Vh), slopes)
            else:
                gM = composed(U, g.unsqueeze(-1) * slopes.values, Vh)
            return gM, *[None] * 10

    @staticmethod
    def jvp(ctx, dM, *_):  # type: ignore[no-untyped-def]
        M, U, S, Vh, *kept = ctx.saved_tensors
        with full_precision(U):
            return (compose(M, Triplets(U, S, Vh), _weights(*kept)).conj() * dM).real.sum((-2, -1))


def _weights(values: Tensor, joint: Tensor, outer: Tensor, curvature: Tensor) -> Weights:
    return Weights(values, lambda: (joint, outer), lambda: curvature)
