r"""The derivatives of eigenvalues alone, with the exact Hessian of symmetric losses at ties.

The gradient of :math:`g(\lambda(A))` is :math:`\bar A=V\,\mathrm{diag}(\bar\lambda)V^H` with
:math:`\bar\lambda=\nabla g`. Differentiating this product with the eigenvectors as in :mod:`.eigenvectors` is right only
where the eigenvalues are distinct: within a tie the eigenvectors have no derivative. The second derivative exists all
the same, and is computed here without it.

Reverse mode over reverse mode. The derivative of :math:`\bar A` is the self-adjoint map of :mod:`.curvature`, whose
coefficients :math:`\Gamma` are found by differentiating :math:`\bar\lambda` once more; its diagonal is left to autograd,
which takes :math:`\mathrm{diag}(V^HZV)` from :math:`\bar\lambda` to λ and from there to A.

Forward mode over reverse mode, as in torch.func.hessian. The graph of :math:`\bar\lambda` is not available there, but
the direction :math:`\dot A` is known from the start. Choose in each tied block the basis :math:`V'=VR` in which
:math:`\dot A` is diagonal. The eigenvalues of the blocks are the true directional derivatives :math:`\dot\lambda` of the
sorted eigenvalues, and the eigenvectors V′ move between blocks only, so

.. math:: \dot{\bar A}=V'\,\mathrm{diag}(\dot{\bar\lambda})V'^H+V(\Gamma\circ V^H\dot AV)V^H

with the quotients :math:`\Gamma` between different blocks. Both places see the same :math:`\dot A` and find the same R.

The generalised problem :math:`Ax=\lambda Bx` is reduced to an ordinary one. With the eigenvectors X at hand,
:math:`X^HBX=I+E` with E = 0 but :math:`dE\ne0`, and the eigenvalues are those of

.. math:: C=(I+E)^{-1/2}\,X^HAX\,(I+E)^{-1/2},\qquad (I+E)^{-1/2}=I-\tfrac12E+\tfrac38E^2+O(E^3) .
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import solvers
from ..dispatch import function
from ..precision import full_precision, quotient
from ..solvers.symmetry import hermitian
from . import curvature, eigenvectors
from .gap_rule import GapRule
from .pairwise import differences


def values(A: Tensor, rule: GapRule, operation: str) -> Tensor:
    """Return the eigenvalues of ``A`` in working precision; ``rule`` is for third derivatives only."""
    w: Tensor = function.apply(_Values, A, rule, operation)[0]
    return w


def gradient(A: Tensor, w: Tensor, V: Tensor, slopes: Tensor, rule: GapRule) -> Tensor:
    """Return V diag(slopes) Vᴴ with its derivative in ``A`` and ``slopes``, also at ties.

    Args:
        A: matrices (*, d, d).
        w: their eigenvalues (*, d), the tensor that the loss was computed from.
        V: their eigenvectors (*, d, d).
        slopes: the gradient of the loss with respect to ``w``.
        rule: the gap rule for third derivatives.
    """
    result: Tensor = function.apply(_Gradient, A, w, V, slopes, rule)
    return result


def directional(w: Tensor, inner: Tensor) -> Tensor:
    """Return the directional derivatives (*, d) of sorted eigenvalues from VᴴdAV (*, d, d)."""
    split, _ = solvers.split_eigenvalues(w.detach(), inner.detach())
    diagonal = inner.diagonal(dim1=-2, dim2=-1).real
    return diagonal + (split - diagonal).detach()


class _Values(function.DerivativeRule):
    @staticmethod
    def forward(A: Tensor, rule: GapRule, operation: str) -> tuple[Tensor, Tensor]:
        return solvers.eigh_at_once(A, operation) or solvers.eigh(A, operation)

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        ctx.rule = inputs[1]
        ctx.save_for_backward(inputs[0], *output)
        ctx.save_for_forward(inputs[0], *output)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, gw, _):  # type: ignore[no-untyped-def]
        if gw is None:
            return None, None, None
        A, w, V = ctx.saved_tensors
        if not function.differentiating() and function.eager(V, gw):
            fused = solvers.eigh_gradient((w, V), (gw, None), lambda w: None, False, False)
            if fused is not None:
                return fused, None, None
        return gradient(A, w, V, gw, ctx.rule), None, None

    @staticmethod
    def jvp(ctx, dA, *_):  # type: ignore[no-untyped-def]
        A, w, V = ctx.saved_tensors
        with full_precision(V):
            _, moving = eigenvectors.attach(A, w, V, ctx.rule)
            return directional(w, moving.mH @ hermitian(dA) @ moving), None


class _Gradient(function.DerivativeRule):
    """V diag(slopes) Vᴴ. The slopes may have more batch dimensions in front, which torch.func.vmap adds."""

    generate_vmap_rule = False

    @staticmethod
    def forward(A: Tensor, w: Tensor, V: Tensor, slopes: Tensor, rule: GapRule) -> Tensor:
        with full_precision(V):
            return (V * slopes.to(V.dtype).unsqueeze(-2)) @ V.mH

    @staticmethod
    def vmap(info: Any, in_dims: Any, A: Tensor, w: Tensor, V: Tensor, slopes: Tensor, rule: GapRule) -> Any:
        A, V = (x.movedim(dim, 0) if dim else x for x, dim in zip((A, V), in_dims[::2], strict=False))
        w, slopes, place = curvature.mapped(w, slopes, in_dims[1], in_dims[3])
        return gradient(A, w, V, slopes, rule), place

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        *tensors, ctx.rule = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx, Z):  # type: ignore[no-untyped-def]
        A, w, V, slopes = ctx.saved_tensors
        with full_precision(V):
            hessian = curvature.Curvature(w, slopes)
            w, V = eigenvectors.attach(A, w, V, ctx.rule)
            inner = V.mH @ hermitian(Z) @ V
            gA = V @ (curvature.divided_slopes(w, hessian) * inner) @ V.mH
            diagonal = inner.diagonal(dim1=-2, dim2=-1).real
            return gA.sum_to_size(A.shape), None, None, diagonal.sum_to_size(slopes.shape), None

    @staticmethod
    def jvp(ctx, dA, dw, dV, dslopes, _):  # type: ignore[no-untyped-def]
        A, w, V, slopes = ctx.saved_tensors
        with full_precision(V):
            moving, U = eigenvectors.attach(A, w, V, ctx.rule)
            change = torch.zeros_like(slopes) if dslopes is None else dslopes
            if dA is None:
                return (U * change.to(U.dtype).unsqueeze(-2)) @ U.mH
            inner = U.mH @ hermitian(dA) @ U
            _, R = solvers.split_eigenvalues(w.detach(), inner.detach())
            group = solvers.groups(w.detach())
            apart = group.unsqueeze(-1) != group.unsqueeze(-2)
            gamma = quotient(differences(slopes), differences(moving), apart)
            within = (R * change.to(R.dtype).unsqueeze(-2)) @ R.mH
            return U @ (gamma * inner + within) @ U.mH
