r"""The derivatives of the eigenvalues of A x = λ B x alone, with the exact Hessian of symmetric losses at ties.

With the eigenvectors X at hand, which are not differentiated, :math:`X^HBX=I`. If B changes, this product is
:math:`LL^H` with the Cholesky factor :math:`L=I` but :math:`dL\ne0`. With :math:`Y=XL^{-H}` the problem becomes the
ordinary one of :math:`C=Y^HAY=\Lambda`, whose gradient :math:`\bar C` is computed as in :mod:`.values`. Since
:math:`\bar C` commutes with C, and the eigenvectors of the pencil are Y times the eigenvectors of C,

.. math:: \bar A=Y\bar CY^H,\qquad \bar B=-Y\,\mathrm{sym}(C\bar C)\,Y^H .

These are functions of A and B that can be differentiated any number of times. In forward mode, the eigenvalues change
as the eigenvalues of C in the direction :math:`Y^HdA\,Y-\mathrm{sym}(C\,Y^HdB\,Y)`. At the point itself all of this is
:math:`X\,\mathrm{diag}(\bar\lambda)X^H` and :math:`-X\,\mathrm{diag}(\lambda\bar\lambda)X^H`, without a factorisation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function, observation
from ...precision import full_precision
from ...solvers import Ties
from ...solvers.products import composed, from_basis, in_basis
from ...solvers.symmetry import hermitian
from .. import existence
from ..gap_rule import GapRule
from . import values as eigenvalues
from . import vectors as eigenvectors


def values(A: Tensor, B: Tensor, rule: GapRule, operation: str, ties: Ties | None = None) -> Tensor:
    """Return the eigenvalues of the pencil (A, B); ``rule`` is for third derivatives only."""
    ties = eigenvalues.grouping(A, B) if ties is None else ties
    w: Tensor = function.apply(_Values, A, B, rule, operation, ties)[0]
    return w


def gradients(
    pencil: tuple[Tensor, Tensor],
    w: Tensor,
    X: Tensor,
    slopes: Tensor,
    rule: GapRule,
    wanted: Sequence[bool],
    ties: Ties = Ties.NONE,
) -> tuple[Tensor | None, Tensor | None]:
    """Return the requested gradients in A and B, with their derivatives in both and in ``slopes``.

    Args:
        pencil: A and B.
        w: their eigenvalues (*, d), the tensor that the loss was computed from.
        X: the eigenvectors, without gradient.
        slopes: the gradient of the loss with respect to ``w``.
        rule, ties: as in :func:`spectralgrad.autograd.eigen.values.gradient`.
        wanted: for which of the two.
    """
    C, Y = _reduced(*pencil, w, X)
    gC = eigenvalues.gradient(C, w, _identity(X), slopes, rule, ties)
    gA = from_basis(Y, gC) if wanted[0] else None
    return gA, -Y @ hermitian(C @ gC) @ Y.mH if wanted[1] else None


class _Values(function.DerivativeRule):
    results = "w X"
    non_differentiable = "X"
    keeps = "A B w X rule ties"
    materialize_grads = False

    @staticmethod
    def forward(A: Tensor, B: Tensor, rule: GapRule, operation: str, ties: Ties) -> tuple[Tensor, Tensor]:
        return solvers.pencil_eigh(A, B, operation)

    @staticmethod
    def backward(ctx, gw, _):  # type: ignore[no-untyped-def]
        if gw is None:
            return None, None, None, None, None
        A, B, w, X = ctx.saved_tensors
        if observation.wanted():
            observation.tell(ctx, lambda: existence.of_values(w, gw))
        wanted = ctx.needs_input_grad
        with full_precision(X):
            if not function.differentiating():
                gA = composed(X, gw, X.mH) if wanted[0] else None
                return gA, composed(X, -w * gw, X.mH) if wanted[1] else None, None, None, None
            return *gradients((A, B), w, X, gw, ctx.rule, wanted, ctx.ties), None, None, None

    @staticmethod
    def jvp(ctx, dA, dB, *_):  # type: ignore[no-untyped-def]
        A, B, w, X = ctx.saved_tensors
        with full_precision(X):
            C, Y = _reduced(A, B, w, X)
            M, N = (torch.zeros_like(X) if d is None else in_basis(Y, hermitian(d)) for d in (dA, dB))
            V = eigenvectors.attach(C, w, _identity(X), ctx.rule)[1]
            return eigenvalues.directional(w, in_basis(V, M - hermitian(C @ N)), ctx.ties), None


def _reduced(A: Tensor, B: Tensor, w: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return C and Y. Their values Λ and X are known, so only their derivatives are computed."""
    metric = in_basis(X, hermitian(B))
    L = torch.linalg.cholesky_ex(_identity(X) + (metric - metric.detach())).L  # the identity cannot fail
    Y = torch.linalg.solve_triangular(L.mH, X, upper=True, left=False)
    C = in_basis(Y, hermitian(A))
    return torch.diag_embed(w.detach()).to(C.dtype) + (C - C.detach()), Y


def _identity(X: Tensor) -> Tensor:
    return torch.eye(X.shape[-1], dtype=X.dtype, device=X.device).expand_as(X)
