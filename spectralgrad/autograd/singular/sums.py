r"""Sums of functions of singular values, :math:`\sum_ig(\sigma_i)`, as norms are.

Their gradient is :math:`U\,\mathrm{diag}g'(\sigma)\,V^H`, a function of singular values
(:mod:`spectralgrad.autograd.singular.functions`), and the second derivative is the derivative of that.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...dispatch import function, observation
from ...precision import full_precision
from .. import existence
from .functions import SingularFunction, Triplets, Weights, compose, composed


def sum_of(M: Tensor, total: Tensor, triplets: Triplets, slopes_of: Callable[[], Weights]) -> Tensor:
    """Return ``total`` (*,), a sum of g(σ), as a function of ``M``; its gradient is U g′(S) Vᴴ with the slopes g′.

    The slopes are computed only if a gradient is required.
    """
    if function.needs_no_gradient(M):
        return total
    result: Tensor
    slopes = slopes_of()
    if function.reverse_only(M):
        result = function.run(_SumInReverse, M, total, *triplets, slopes)
    else:
        result = function.apply(_Sum, M, total, *triplets, slopes.values, *slopes.pairs(), slopes.curvature())
    return result


class _SumInReverse(torch.autograd.Function):
    """A sum of g(σ) in reverse mode, the common case: only g′ is computed for a first derivative."""

    @staticmethod
    def forward(ctx, M, total, U, S, Vh, slopes):  # type: ignore[no-untyped-def]
        ctx.slopes = slopes
        if observation.sources:
            observation.record(ctx)
        ctx.save_for_backward(M, U, S, Vh, slopes.values)
        return total.clone()

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        M, U, S, Vh, values = ctx.saved_tensors
        if ctx.slopes.kinks is not None and observation.wanted():
            observation.tell(ctx, lambda: existence.of_kinks(ctx.slopes.kinks(), g.unsqueeze(-1)))
        with full_precision(U):
            if function.differentiating():
                gM = g[..., None, None] * compose(M, Triplets(U, S, Vh), ctx.slopes)
            else:
                gM = composed(U, g.unsqueeze(-1) * values, Vh)
            return gM, *[None] * 5


class _Sum(function.DerivativeRule):
    """The sum of a function of the singular values, for compilers, transforms and forward mode."""

    @staticmethod
    def forward(
        M: Tensor,
        total: Tensor,
        U: Tensor,
        S: Tensor,
        Vh: Tensor,
        values: Tensor,
        joint: Tensor,
        outer: Tensor,
        curvature: Tensor,
    ) -> Tensor:
        return total.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        M, _, *spectrum = inputs
        ctx.save_for_backward(M, *spectrum)
        ctx.save_for_forward(M, *spectrum)

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        return g[..., None, None] * _gradient(*ctx.saved_tensors), *[None] * 8

    @staticmethod
    def jvp(ctx, dM, *_):  # type: ignore[no-untyped-def]
        return (_gradient(*ctx.saved_tensors).conj() * dM).real.sum((-2, -1))


def _gradient(M: Tensor, U: Tensor, S: Tensor, Vh: Tensor, values: Tensor, *derivatives: Tensor) -> Tensor:
    with full_precision(U):
        if not function.differentiating():
            return composed(U, values, Vh)
        result: Tensor = function.apply(SingularFunction, M, U, S, Vh, values, *derivatives)
        return result
