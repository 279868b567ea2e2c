r"""The derivative of eigenvalues and eigenvectors, with any gap rule.

Derivation. Let :math:`A=V\Lambda V^H` and write :math:`dV=V\Omega` with :math:`\Omega` skew-Hermitian.
Differentiating :math:`AV=V\Lambda` gives :math:`V^HdA\,V=d\Lambda+\Omega\Lambda-\Lambda\Omega`, hence

.. math:: d\lambda_i=(V^HdA\,V)_{ii},\qquad
          \Omega_{ij}=\frac{(V^HdA\,V)_{ij}}{\lambda_j-\lambda_i}=(K^\top\circ V^HdA\,V)_{ij}.

Transposing this linear map gives the backward formula that all gap rules share,

.. math:: \bar A = V\,\mathrm{sym}\bigl(\hat K^\top\circ V^H\bar V+\mathrm{diag}\,\bar\lambda\bigr)V^H ,

where :math:`\hat K` replaces :math:`K_{ij}=1/(\lambda_i-\lambda_j)`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function, observation
from ...precision import full_precision
from ...solvers.products import from_basis, in_basis
from ...solvers.symmetry import hermitian
from .. import existence, gauge
from ..gap_rule import GapRule


def attach(A: Tensor, w: Tensor, V: Tensor, rule: GapRule, support: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the eigenpairs (w, V) of ``A``, given without gradient, as functions of ``A`` differentiated by ``rule``.

    Rotations among eigenvectors outside the mask ``support`` (*, d) have no gradient.
    """
    if function.needs_no_gradient(A):
        return w, V
    result: tuple[Tensor, Tensor] = function.apply(Eigh, A, w, V, support, rule, "")
    return result


def replaced(w: Tensor, V: Tensor, rule: GapRule) -> tuple[Tensor, Tensor]:
    """Return the eigenpairs with the eigenvalues that the rule uses instead, if it does."""
    others = rule.replaced(w)
    return (w if others is None else others), V


def within(K: Tensor, support: Tensor | None) -> Tensor:
    """Return the gap matrix with zeros for pairs that are both outside ``support``, even if the rule is infinite."""
    if support is None:
        return K
    return torch.where(support.unsqueeze(-1) | support.unsqueeze(-2), K, 0)


def without_gradient(w: Tensor, V: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
    """Remove the gradient of the eigenpairs outside ``keep``."""
    if keep is None:
        return w, V
    return torch.where(keep, w, w.detach()), torch.where(keep.unsqueeze(-2), V, V.detach())


class Eigh(function.DerivativeRule):
    """The eigenpairs of A: copies of given ones, or computed by the solver."""

    results = "w V"
    keeps = "w V support rule"
    materialize_grads = False

    @staticmethod
    def forward(
        A: Tensor, w: Tensor | None, V: Tensor | None, support: Tensor | None, rule: GapRule, operation: str
    ) -> tuple[Tensor, Tensor]:
        if w is not None and V is not None:
            return w.clone(), V.clone()
        return replaced(*solvers.eigh(A, operation), rule)

    @staticmethod
    def backward(ctx: Any, gw: Tensor | None, gV: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors[:3]  # once: torch.utils.checkpoint computes them again each time
        Eigh.observed(ctx, saved, gw, gV)
        return _backward(saved, gw, gV, ctx.rule), None, None, None, None, None

    @staticmethod
    def observed(ctx: Any, saved: tuple[Tensor, ...], gw: Tensor | None, gV: Tensor | None) -> None:
        """Tell diagnostics where no derivative exists."""
        if observation.wanted():
            w, V = saved[:2]
            observation.tell(ctx, lambda: existence.of_eigenpairs(w, V, gw, gV))

    @staticmethod
    def jvp(ctx: Any, dA: Tensor, *_: None) -> tuple[Tensor, Tensor]:
        w, V, support = ctx.saved_tensors[:3]
        with full_precision(V):
            inner = in_basis(V, hermitian(dA))
            return inner.diagonal(dim1=-2, dim2=-1).real, V @ (within(ctx.rule.gaps(w), support).mT * inner)


def _backward(
    saved: tuple[Tensor, Tensor, Tensor | None], gw: Tensor | None, gV: Tensor | None, rule: GapRule
) -> Tensor | None:
    w, V, support = saved
    given = [g for g in (gw, gV) if g is not None]
    if not given:
        return None
    if support is None and not function.differentiating() and function.eager(V, *given):
        fused = solvers.eigh_gradient((w, V), (gw, gV), rule.fused_gaps, rule.filters_gauge, rule.saturates)
        if fused is not None:
            return fused
    with full_precision(V):
        inner = torch.zeros_like(V) if gV is None else _rotations(w, V, support, gV, rule)
        if gw is not None:
            inner = inner + torch.diag_embed(gw.to(V.dtype))
        return from_basis(V, inner)


def _rotations(w: Tensor, V: Tensor, support: Tensor | None, gV: Tensor, rule: GapRule) -> Tensor:
    """Return the part of the gradient, in the eigenbasis, that comes from the eigenvectors."""
    return rotations(w, V.mH @ gV, gauge.column_norms(gV), support, rule)


def rotations(w: Tensor, coupling: Tensor, sizes: Tensor, support: Tensor | None, rule: GapRule) -> Tensor:
    """Return the eigenvectors' part of the gradient, in the eigenbasis.

    ``coupling`` is VᴴV̄, and ``sizes`` are the norms of the columns of V̄.
    """
    if rule.filters_gauge:
        coupling = gauge.drop_noise(coupling, sizes, w)
    return hermitian(rule.weighed(within(rule.gaps(w), support).mT, coupling))
