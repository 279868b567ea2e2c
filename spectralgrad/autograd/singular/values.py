r"""The derivatives of singular values alone, with the exact Hessian of symmetric losses at ties and at zero.

The gradient of :math:`g(\sigma(M))` is :math:`\bar M=U\,\mathrm{diag}(\bar\sigma)V^H`. The matrix
:math:`\begin{pmatrix}0&M\\M^H&0\end{pmatrix}` has the eigenvalues :math:`\pm\sigma_i`, so its second derivative follows
from the second derivative of eigenvalues (:mod:`..eigen.values`). With :math:`P=U^HZV`, its Hermitian part :math:`P_h`
and its skew part :math:`P_s`, it is

.. math:: U\bigl(\mathrm{diag}(\nabla^2g\;\mathrm{diag}P_h)+\Gamma^-\circ P_h+\Gamma^+\circ P_s\bigr)V^H
          +(I-UU^H)ZV\,\mathrm{diag}\Bigl(\frac{g_i}{\sigma_i}\Bigr)V^H,\qquad
          \Gamma^\pm_{ij}=\frac{g_i\pm g_j}{\sigma_i\pm\sigma_j}

for m ≥ n, with :math:`\Gamma^-_{ii}=0`. :mod:`..eigen.second_derivatives` defines :math:`\Gamma^-`. At
:math:`\sigma_i=0` the second derivative exists if g is even in :math:`\sigma_i`, as :math:`\sum\log(1+\sigma^2)`; there
:math:`g_i/\sigma_i` and :math:`\Gamma^+` become :math:`g_{ii}`. If g is not even, as the nuclear norm, this leaves out
the part that does not exist.

In forward mode over reverse mode, the vectors of tied singular values are rotated such that :math:`P_h` is diagonal
between them, and the vectors of vanishing singular values become the singular vectors of Z restricted to the orthogonal
complement of the others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function, observation
from ...precision import full_precision, quotient, rank_tolerance
from ...solvers import Ties
from ...solvers.products import composed
from .. import existence
from ..eigen import second_derivatives
from ..eigen.values import grouping
from ..gap_rule import GapRule
from ..pairwise import norm
from . import vectors as singular_vectors
from .functions import Triplets, formula


def values(M: Tensor, rule: GapRule, operation: str, ties: Ties | None = None) -> Tensor:
    """Return the singular values of ``M`` in working precision; ``rule`` is for third derivatives only."""
    S: Tensor = function.apply(_Values, M, rule, operation, grouping(M) if ties is None else ties)[1]
    return S


def gradient(M: Tensor, triplets: Triplets, slopes: Tensor, rule: GapRule, ties: Ties = Ties.NONE) -> Tensor:
    """Return U diag(slopes) Vᴴ with its derivative in ``M`` and ``slopes``, also at ties and at zero.

    Args:
        M: matrices (*, m, n).
        triplets: their singular value decomposition; the loss was computed from this very S.
        slopes: the gradient of the loss with respect to S.
        rule: the gap rule for third derivatives.
        ties: how S was differentiated in forward mode.
    """
    result: Tensor = function.apply(_Gradient, M, *triplets, slopes, rule, ties)
    return result


class _Values(function.DerivativeRule):
    results = "U S Vh"
    non_differentiable = "U Vh"
    keeps = "M U S Vh rule ties"
    materialize_grads = False

    @staticmethod
    def forward(M: Tensor, rule: GapRule, operation: str, ties: Ties) -> tuple[Tensor, Tensor, Tensor]:
        return solvers.svd(M, operation)

    @staticmethod
    def backward(ctx, _, gS, __):  # type: ignore[no-untyped-def]
        if gS is None:
            return None, None, None, None
        M, U, S, Vh = ctx.saved_tensors
        if observation.wanted():
            observation.tell(ctx, lambda: existence.of_values(S, gS, longer=max(M.shape[-2:])))
        if not function.differentiating() and function.eager(U, S, Vh, gS):
            fused = solvers.svd_gradient((U, S, Vh), (None, gS, None), ctx.rule.fused_gaps, False, False)
            if fused is not None:
                return fused, None, None, None
        return gradient(M, Triplets(U, S, Vh), gS, ctx.rule, ctx.ties), None, None, None

    @staticmethod
    def jvp(ctx, dM, *_):  # type: ignore[no-untyped-def]
        M, U, S, Vh = ctx.saved_tensors
        with full_precision(U):
            numbers = solvers.singular_groups(S.detach(), ctx.ties, max(M.shape[-2:]))
            U, S, Vh = singular_vectors.attach(M, U, S, Vh, ctx.rule)
            diagonal = ((U.mH @ dM) * Vh.conj()).sum(-1).real
            if ctx.ties is Ties.NONE:
                return None, diagonal, None
            split = solvers.split_singular_values(numbers, U.detach(), Vh.detach(), dM.detach())[1]
            return None, diagonal + (split - diagonal).detach(), None


class _Gradient(function.DerivativeRule):
    """U diag(slopes) Vᴴ. The slopes may have more batch dimensions in front, which torch.func.vmap adds."""

    keeps = "M U S Vh slopes rule ties"
    generate_vmap_rule = False

    @staticmethod
    def forward(M: Tensor, U: Tensor, S: Tensor, Vh: Tensor, slopes: Tensor, rule: GapRule, ties: Ties) -> Tensor:
        with full_precision(U):
            return composed(U, slopes, Vh)

    @staticmethod
    def vmap(info, in_dims, M, U, S, Vh, slopes, rule, ties):  # type: ignore[no-untyped-def]
        first = (M, in_dims[0]), (U, in_dims[1]), (Vh, in_dims[3])
        M, U, Vh = (x.movedim(dim, 0) if dim else x for x, dim in first)
        S, slopes, place = second_derivatives.mapped(S, slopes, in_dims[2], in_dims[4])
        return gradient(M, Triplets(U, S, Vh), slopes, rule, ties), place

    @staticmethod
    def backward(ctx, Z):  # type: ignore[no-untyped-def]
        M, U, S, Vh, slopes = ctx.saved_tensors
        with full_precision(U):
            hessian = second_derivatives.Curvature(S, slopes)
            U, S, Vh = singular_vectors.attach(M, U, S, Vh, ctx.rule)
            joint = second_derivatives.divided_slopes(S, hessian)
            vanishing = S.detach() <= 4 * rank_tolerance(max(M.shape[-2:]), S.dtype) * norm(S).unsqueeze(-1)
            gM = formula(Z, U, Vh, joint, *_ratios(S, slopes, vanishing, _own(hessian, vanishing)))
            diagonal = ((U.mH @ Z) * Vh.conj()).sum(-1).real
            return gM.sum_to_size(M.shape), None, None, None, diagonal.sum_to_size(slopes.shape), None, None

    @staticmethod
    def jvp(ctx, dM, dU, dS, dVh, dslopes, *_):  # type: ignore[no-untyped-def]
        M, U, S, Vh, slopes = ctx.saved_tensors
        with full_precision(U):
            numbers = solvers.singular_groups(S.detach(), ctx.ties, max(M.shape[-2:]))
            U, S, Vh = singular_vectors.attach(M, U, S, Vh, ctx.rule)
            change = torch.zeros_like(slopes) if dslopes is None else dslopes
            if dM is None:
                return composed(U, change, Vh)
            X, split, Yh = solvers.split_singular_values(numbers, U.detach(), Vh.detach(), dM.detach())
            X, Yh = U + (X - U).detach(), Vh + (Yh - Vh).detach()  # vectors that are not turned have a derivative
            joint = second_derivatives.between(S, slopes, (split, change), numbers, ctx.ties)
            ratios = _ratios(S, slopes, numbers == -1, torch.zeros_like(slopes))
            return formula(dM, U, Vh, joint, *ratios) + composed(X, change, Yh)


def _ratios(S: Tensor, slopes: Tensor, vanishing: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return :math:`\Gamma^+` (..., *, k, k) and :math:`g_i/\sigma_i` (..., *, k), with ``own`` at zero."""
    outer = torch.where(vanishing, own, quotient(slopes, S, ~vanishing))
    i, j = S.unsqueeze(-1), S.unsqueeze(-2)
    some, larger = ~(vanishing.unsqueeze(-1) & vanishing.unsqueeze(-2)), torch.maximum(i, j)
    sums = quotient(slopes.unsqueeze(-1) + slopes.unsqueeze(-2), larger, some)
    apart = quotient(sums, quotient(i, larger, some) + quotient(j, larger, some), some)  # the sum cannot overflow
    return torch.where(some, apart, (own.unsqueeze(-1) + own.unsqueeze(-2)) / 2), outer


def _own(hessian: second_derivatives.Curvature, vanishing: Tensor) -> Tensor:
    """Return g_ii, which only vanishing singular values need."""
    if function.eager(hessian.w, hessian.slopes) and not bool(vanishing.any()):
        return torch.zeros_like(hessian.slopes)
    return hessian.own()
