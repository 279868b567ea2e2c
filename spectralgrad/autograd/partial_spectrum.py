r"""The derivative of a few eigenpairs at one end of the spectrum, from products with the operator.

Derivation. Only :math:`dA\,V` is needed. In the span of V it acts as in :mod:`.eigenvectors`; orthogonal to it
:math:`(\lambda_i-A)\,dv_i=(I-VV^H)\,dA\,v_i`. The transposed map sends the cotangents of λ and V to that of :math:`AV`,

.. math:: \overline{AV}=V\bigl(\mathrm{sym}(\hat K^\top\circ V^H\bar V)+\mathrm{diag}\,\bar\lambda\bigr)+Z,\qquad
          (\lambda_i-A)z_i=(I-VV^H)\bar v_i,\quad V^Hz_i=0 ,

and autograd continues from there to whatever the product depends on. V spans the eigenvectors at one end of the
spectrum, so :math:`\pm(\lambda_i-A)` is positive definite on its complement and conjugate gradients solve for all
:math:`z_i` at once, with memory for a few n×k matrices. If it is not, an eigenpair is missing or the cut goes through a
tie, and an error says so.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..errors import ConvergenceError
from ..precision import full_precision
from ..solvers.krylov import Product, power_of_two
from .eigenvectors import rotations
from .gap_rule import GapRule
from .gauge import column_norms


def attach(
    AV: Tensor, w: Tensor, V: Tensor, product: Product, rule: GapRule, sign: int, tol: float
) -> tuple[Tensor, Tensor]:
    """Return the eigenpairs (w, V), given without gradient, as functions of ``AV``, the operator's product with V.

    Args:
        AV: (n, k), carrying the graph of the operator.
        w: eigenvalues (k,).
        V: eigenvectors (n, k).
        product: the operator.
        rule: the gap rule between the k pairs.
        sign: 1 if they are the largest, −1 if they are the smallest.
        tol: relative residual of the linear solves.
    """
    result: tuple[Tensor, Tensor] = _Partial.apply(AV, w, V, product, rule, sign, tol)  # type: ignore[no-untyped-call]
    return result


class _Partial(torch.autograd.Function):
    @staticmethod
    def forward(ctx, AV, w, V, product, rule, sign, tol):  # type: ignore[no-untyped-def]
        ctx.product, ctx.rule, ctx.sign, ctx.tol = product, rule, sign, tol
        ctx.save_for_backward(w, V)
        ctx.set_materialize_grads(False)
        return w.clone(), V.clone()

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx, gw, gV):  # type: ignore[no-untyped-def]
        w, V = ctx.saved_tensors
        inner = torch.zeros(len(w), len(w), dtype=V.dtype, device=V.device)
        outside = torch.zeros_like(V)
        with full_precision(V):
            if gV is not None:
                C = V.mH @ gV
                inner = rotations(w, C, column_norms(gV), None, gw, ctx.rule)
                outside = _solve(ctx.product, w, V, gV, ctx.sign, ctx.tol)
            if gw is not None:
                inner = inner + torch.diag_embed(gw.to(V.dtype))
            return V @ inner + outside, None, None, None, None, None, None


def _solve(product: Product, w: Tensor, V: Tensor, R: Tensor, sign: int, tol: float) -> Tensor:
    """Return Z (n, k) with (λᵢ − A) zᵢ = (I − VVᴴ) rᵢ on the complement of V, by conjugate gradients.

    The tolerance is relative to R before it is projected, so that a right-hand side of rounding errors counts as zero.
    """

    def squares(X: Tensor) -> Tensor:
        return X.abs().square().sum(0)

    def outside(X: Tensor) -> Tensor:
        return X - V @ (V.mH @ X)

    largest = R.abs().amax(0)
    unit = torch.where(largest > 0, largest, 1)
    R = R / unit  # so that no square overflows or underflows, and likewise the products below
    scale = power_of_two(R * w - product(R)) or 1.0
    wanted = tol**2 * squares(R)
    R = outside(R)
    Z, P, size = torch.zeros_like(R), R, squares(R)
    limit = max(1000, len(V))
    for _ in range(limit):
        active = size > wanted
        if not bool(active.any()):
            return Z * (unit * (sign / scale))
        Q = outside(sign * (P * w - product(P)) / scale)
        curvature = (P.conj() * Q).sum(0).real
        if bool((active & ~(curvature > 0)).any()):
            raise ConvergenceError(_INDEFINITE)
        step = torch.where(active, size / torch.where(active, curvature, 1), 0)
        Z, R = Z + step * P, R - step * Q
        before, size = size, squares(R)
        P = R + torch.where(active, size / torch.where(active, before, 1), 0) * P
    raise ConvergenceError(
        f"eigsh: the gradient's linear solves did not reach the relative residual {tol:.1g} in {limit} steps; the gap "
        "to the discarded eigenvalues is small. Choose k at a larger gap, or pass a larger tol."
    )


_INDEFINITE = (
    "eigsh: the gradient does not exist or an eigenpair was missed: the eigenvalues next to the cut are tied, or the "
    "operator is not Hermitian. Choose k such that the k-th and the next eigenvalue differ."
)
