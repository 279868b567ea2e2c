r"""The derivative of the generalised problem A X = B X Λ with XᴴBX = I, with any gap rule.

Derivation. Write :math:`dX=X\Omega`, :math:`M=X^HdA\,X` and :math:`N=X^HdB\,X`. Differentiating the two equations gives
:math:`M-N\Lambda-d\Lambda=\Omega\Lambda-\Lambda\Omega` and :math:`\Omega+\Omega^H=-N`, hence

.. math:: d\lambda_i=M_{ii}-\lambda_iN_{ii},\qquad
          \Omega=-\tfrac12N+K^\top\circ\Bigl(M-\tfrac{\lambda_i+\lambda_j}2\circ N\Bigr),

where the matrix in parentheses is Hermitian, so that a gap rule acts on it as in the ordinary problem. With
:math:`C=X^H\bar X` and :math:`S=\mathrm{sym}(\hat K^\top\circ C)+\mathrm{diag}\,\bar\lambda` the transposed map is

.. math:: \bar A=XSX^H,\qquad
          \bar B=-X\Bigl(\tfrac{\lambda_i+\lambda_j}2\circ S+\tfrac12\mathrm{sym}\,C\Bigr)X^H .

Neither B nor its inverse appears, so the gradient is as accurate as the eigenpairs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function, observation
from ...precision import full_precision
from ...solvers import Ties
from ...solvers.products import from_basis, in_basis
from ...solvers.symmetry import hermitian
from .. import existence, gauge
from ..gap_rule import GapRule
from . import generalised_values
from . import values as eigenvalues
from .vectors import rotations, without_gradient


def decompose(A: Tensor, B: Tensor, rule: GapRule, operation: str) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and B-orthonormal eigenvectors of the pencil (A, B), differentiated by ``rule``."""
    w, X = function.apply(_Pencil, A, B, rule, operation)
    if rule.exact_apart and eigenvalues.differentiated_twice(A, B):  # as in .decompositions
        w = generalised_values.values(A, B, rule, operation, Ties.ROUNDING)
    return without_gradient(w, X, None if rule.keeps_all else rule.kept(A, w, X))


class _Pencil(function.DerivativeRule):
    results = "w X"
    keeps = "w X A B rule"
    materialize_grads = False

    @staticmethod
    def forward(A: Tensor, B: Tensor, rule: GapRule, operation: str) -> tuple[Tensor, Tensor]:
        w, X = solvers.pencil_eigh(A, B, operation)
        replaced = rule.replaced(w)
        return (w if replaced is None else replaced), X

    @staticmethod
    def backward(ctx, gw, gX):  # type: ignore[no-untyped-def]
        if gw is None and gX is None:
            return None, None, None, None
        w, X, A, B = ctx.saved_tensors
        if observation.wanted():
            observation.tell(ctx, lambda: existence.of_eigenpairs(w, X, gw, gX))
        with full_precision(X):
            if gX is None and ctx.rule.exact_apart and function.reversed_again():
                wanted = ctx.needs_input_grad
                return *generalised_values.gradients((A, B), w, X.detach(), gw, ctx.rule, wanted), None, None
            C = None if gX is None else X.mH @ gX
            S = _spectral(w, X, C, gw, ctx.rule)
            gA = from_basis(X, S) if ctx.needs_input_grad[0] else None
            gB = _metric(w, X, C, S) if ctx.needs_input_grad[1] else None
            return gA, gB, None, None

    @staticmethod
    def jvp(ctx, dA, dB, *_):  # type: ignore[no-untyped-def]
        w, X = ctx.saved_tensors[:2]
        with full_precision(X):
            M, N = (torch.zeros_like(X) if d is None else in_basis(X, hermitian(d)) for d in (dA, dB))
            inner = M - _means(w) * N
            return inner.diagonal(dim1=-2, dim2=-1).real, X @ (ctx.rule.gaps(w).mT * inner - N / 2)


def _spectral(w: Tensor, X: Tensor, C: Tensor | None, gw: Tensor | None, rule: GapRule) -> Tensor:
    """Return S (*, d, d), by the kernel if it may be used: S is the gradient of an ordinary problem with vectors I."""
    given = [g for g in (C, gw) if g is not None]
    if C is None:
        return torch.diag_embed(given[0]).to(X.dtype)
    if not function.differentiating() and function.eager(X, *given):
        identity = torch.eye(X.shape[-1], dtype=X.dtype, device=X.device).expand_as(X)
        fused = solvers.eigh_gradient((w, identity), (gw, C), rule.fused_gaps, rule.filters_gauge, rule.saturates)
        if fused is not None:
            return fused
    S = rotations(w, C, gauge.column_norms(C), None, rule)
    return S if gw is None else S + torch.diag_embed(gw.to(X.dtype))


def _metric(w: Tensor, X: Tensor, C: Tensor | None, S: Tensor) -> Tensor:
    inner = _means(w) * S
    return -X @ (inner if C is None else torch.add(inner, C + C.mH, alpha=0.25)) @ X.mH


def _means(w: Tensor) -> Tensor:
    half = w / 2
    return half.unsqueeze(-1) + half.unsqueeze(-2)
