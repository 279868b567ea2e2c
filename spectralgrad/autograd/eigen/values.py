r"""The derivatives of eigenvalues alone, with the exact Hessian of symmetric losses at ties.

The gradient of :math:`g(\lambda(A))` is :math:`\bar A=V\,\mathrm{diag}(\bar\lambda)V^H` with
:math:`\bar\lambda=\nabla g`. Differentiating this product with the eigenvectors as in :mod:`.vectors` is right
where the eigenvalues are distinct. Within a tie the eigenvectors have no derivative, but the product has one if g
treats the tied eigenvalues alike.

Reverse mode over reverse mode. The derivative of :math:`\bar A` in A is the self-adjoint map
:math:`Z\mapsto V(\Gamma\circ V^HZV)V^H` of :mod:`.second_derivatives`, which finds the coefficients by differentiating
:math:`\bar\lambda` once more. The diagonal is left to autograd, which takes :math:`\mathrm{diag}(V^HZV)` from
:math:`\bar\lambda` to λ and from there to A.

Forward mode over reverse mode, as in torch.func.hessian. The graph of :math:`\bar\lambda` is not available there, but
the direction :math:`\dot A` is known from the start. In each tied block choose the basis :math:`V'=VR` in which
:math:`\dot A` is diagonal. The eigenvalues of the blocks are the directional derivatives :math:`\dot\lambda` of the
sorted eigenvalues, and to first order the vectors V′ turn between blocks only, so

.. math:: \dot{\bar A}=V'\,\mathrm{diag}(\dot{\bar\lambda})V'^H+V(\Gamma\circ V^H\dot AV)V^H

with :math:`\Gamma` between different blocks. Both derivatives see the same :math:`\dot A` and find the same R. Nearly
tied eigenvalues are treated as tied, because the result then has an error of the order of the gap, while the quotients
in :math:`\Gamma` have an error of :math:`\epsilon\lambda/\text{gap}`. What the quotients have beyond that is added, so
that losses that are not symmetric keep their large second derivatives.

Reverse mode over forward mode has neither the graph nor the direction at the right place; there the part between tied
eigenvectors is lost.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function, observation, torch_internals
from ...precision import full_precision
from ...solvers import Ties
from ...solvers.products import composed, from_basis, in_basis
from ...solvers.symmetry import hermitian
from .. import existence
from ..gap_rule import GapRule
from . import second_derivatives
from . import vectors as eigenvectors


def values(A: Tensor, rule: GapRule, operation: str, ties: Ties | None = None) -> Tensor:
    """Return the eigenvalues of ``A`` in working precision; ``rule`` is for third derivatives only."""
    w: Tensor = function.apply(_Values, A, rule, operation, grouping(A) if ties is None else ties)[0]
    return w


def grouping(*inputs: Tensor) -> Ties:
    """Return which eigenvalues are to be treated as tied in forward mode.

    If only forward mode is applied, or reverse mode to its result, no rotation is needed, and the derivative is linear
    in the direction. With dual numbers the order of differentiation is unknown; only eigenvalues equal to rounding are
    grouped.
    """
    if torch_internals.reverse_inside_forward():
        return Ties.NEAR
    twice = torch_internals.in_forward_mode() and any(x.requires_grad for x in inputs)
    return Ties.ROUNDING if twice and not torch_internals.in_transform() else Ties.NONE


def differentiated_twice(*inputs: Tensor) -> bool:
    """True if forward mode is applied to what may be a gradient, so that eigenvalues need a derivative of their own."""
    return not torch.compiler.is_compiling() and grouping(*inputs) is not Ties.NONE


def gradient(A: Tensor, w: Tensor, V: Tensor, slopes: Tensor, rule: GapRule, ties: Ties = Ties.NONE) -> Tensor:
    """Return V diag(slopes) Vᴴ with its derivative in ``A`` and ``slopes``, also at ties.

    Args:
        A: matrices (*, d, d).
        w: their eigenvalues (*, d), the tensor that the loss was computed from.
        V: their eigenvectors (*, d, d).
        slopes: the gradient of the loss with respect to ``w``.
        rule: the gap rule for third derivatives.
        ties: how ``w`` was differentiated in forward mode.
    """
    result: Tensor = function.apply(_Gradient, A, w, V, slopes, rule, ties)
    return result


def directional(w: Tensor, inner: Tensor, ties: Ties) -> Tensor:
    """Return the directional derivatives (*, d) of sorted eigenvalues from VᴴdAV (*, d, d)."""
    diagonal = inner.diagonal(dim1=-2, dim2=-1).real
    if ties is Ties.NONE:
        return diagonal
    split, _ = solvers.split_eigenvalues(solvers.groups(w.detach(), ties), inner.detach())
    return diagonal + (split - diagonal).detach()


class _Values(function.DerivativeRule):
    results = "w V"
    non_differentiable = "V"
    keeps = "A w V rule ties"
    materialize_grads = False

    @staticmethod
    def forward(A: Tensor, rule: GapRule, operation: str, ties: Ties) -> tuple[Tensor, Tensor]:
        return solvers.eigh(A, operation)

    @staticmethod
    def backward(ctx, gw, _):  # type: ignore[no-untyped-def]
        if gw is None:
            return None, None, None, None
        A, w, V = ctx.saved_tensors
        if observation.wanted():
            observation.tell(ctx, lambda: existence.of_values(w, gw))
        if not function.differentiating() and function.eager(V, gw):
            fused = solvers.eigh_gradient((w, V), (gw, None), lambda w: None, False, False)
            if fused is not None:
                return fused, None, None, None
        return gradient(A, w, V, gw, ctx.rule, ctx.ties), None, None, None

    @staticmethod
    def jvp(ctx, dA, *_):  # type: ignore[no-untyped-def]
        A, w, V = ctx.saved_tensors
        with full_precision(V):
            V = eigenvectors.attach(A, w, V, ctx.rule)[1]
            return directional(w, in_basis(V, hermitian(dA)), ctx.ties), None


class _Gradient(function.DerivativeRule):
    """V diag(slopes) Vᴴ. The slopes may have more batch dimensions in front, which torch.func.vmap adds."""

    keeps = "A w V slopes rule ties"
    generate_vmap_rule = False

    @staticmethod
    def forward(A: Tensor, w: Tensor, V: Tensor, slopes: Tensor, rule: GapRule, ties: Ties) -> Tensor:
        with full_precision(V):
            return composed(V, slopes, V.mH)

    @staticmethod
    def vmap(info, in_dims, A, w, V, slopes, rule, ties):  # type: ignore[no-untyped-def]
        A, V = (x.movedim(dim, 0) if dim else x for x, dim in ((A, in_dims[0]), (V, in_dims[2])))
        w, slopes, place = second_derivatives.mapped(w, slopes, in_dims[1], in_dims[3])
        return gradient(A, w, V, slopes, rule, ties), place

    @staticmethod
    def backward(ctx, Z):  # type: ignore[no-untyped-def]
        A, w, V, slopes = ctx.saved_tensors
        with full_precision(V):
            hessian = second_derivatives.Curvature(w, slopes)
            w, V = eigenvectors.attach(A, w, V, ctx.rule)
            inner = in_basis(V, hermitian(Z))
            gA = from_basis(V, second_derivatives.divided_slopes(w, hessian) * inner)
            diagonal = inner.diagonal(dim1=-2, dim2=-1).real
            return gA.sum_to_size(A.shape), None, None, diagonal.sum_to_size(slopes.shape), None, None

    @staticmethod
    def jvp(ctx, dA, dw, dV, dslopes, *_):  # type: ignore[no-untyped-def]
        A, w, V, slopes = ctx.saved_tensors
        with full_precision(V):
            w, V = eigenvectors.attach(A, w, V, ctx.rule)
            change = torch.zeros_like(slopes) if dslopes is None else dslopes
            if dA is None:
                return composed(V, change, V.mH)
            inner = in_basis(V, hermitian(dA))
            numbers = solvers.groups(w.detach(), ctx.ties)
            split, R = solvers.split_eigenvalues(numbers, inner.detach())
            gamma = second_derivatives.between(w, slopes, (split, change), numbers, ctx.ties)
            return from_basis(V, gamma * inner + composed(R, change, R.mH))
