r"""Eigendecomposition of Hermitian matrices with a chosen gradient.

Derivation. Let :math:`A=V\Lambda V^H` and write :math:`dV=V\Omega` with :math:`\Omega` skew-Hermitian.
Differentiating :math:`AV=V\Lambda` gives :math:`V^HdA\,V=d\Lambda+\Omega\Lambda-\Lambda\Omega`, hence

.. math:: d\lambda_i=(V^HdA\,V)_{ii},\qquad
          \Omega_{ij}=\frac{(V^HdA\,V)_{ij}}{\lambda_j-\lambda_i}=(K^\top\circ V^HdA\,V)_{ij}.

Transposing that linear map gives the one backward formula of this package,

.. math:: \bar A = V\,\mathrm{sym}\bigl(\hat K^\top\circ V^H\bar V+\mathrm{diag}\,\bar\lambda\bigr)V^H ,

with any rule :math:`\hat K` in place of :math:`K_{ij}=1/(\lambda_i-\lambda_j)`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from . import gauge, iterative, solvers, transforms
from .errors import check_square
from .hermitian import from_lower, hermitian
from .methods import GapMethod, Method, resolve
from .overrides import overridable
from .precision import full_precision, real_dtype, widen


class EighResult(NamedTuple):
    """Ascending eigenvalues (*, d) and the eigenvectors (*, d, d) that go with them, as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@overridable
def eigh(A: Tensor, *, method: str | Method = "svd-pade") -> EighResult:
    r"""Eigenvalues and eigenvectors of Hermitian matrices, with a gradient that stays finite at ties.

    .. math:: A = V\,\mathrm{diag}(\lambda)\,V^H,\qquad \lambda_1\le\dots\le\lambda_d .

    The values are those of :func:`torch.linalg.eigh`: the lower triangle is read, eigenvalues ascend, vectors
    are columns. The gradient is Hermitian and formed by ``method``. A loss that sees a
    tied eigenspace only as a whole (its projector, the sum of its eigenvalues) gets its true gradient; a loss of
    single vectors has none at a tie, and the method's documented bound applies. A function of the matrix put
    together from ``eigenvalues`` and ``eigenvectors`` loses entries of its gradient at a tie, which no rule can
    supply: use :func:`matrix_sqrt` and its kin instead, which have no gap at all.

    Args:
        A: Hermitian matrices (*, d, d), real or complex; half types are computed in float32.
        method: a name from :func:`methods` or a method object.

    Returns:
        named tuple ``(eigenvalues, eigenvectors)`` of shapes (*, d) and (*, d, d).

    Raises:
        NonFiniteError: the input holds NaN or Inf; the message names the batch positions.
        SolverError: no solver could decompose a matrix.

    Example:
        >>> A = torch.eye(3, requires_grad=True)
        >>> w, V = eigh(A)
        >>> (V[:, 1:] @ V[:, 1:].T).diagonal().sum().backward()   # torch.linalg.eigh gives NaN here
        >>> A.grad
        tensor([[0., 0., 0.],
                [0., 0., 0.],
                [0., 0., 0.]])

    Reference: the derivation stands at the top of this module; the methods name their papers.
    """
    check_square(A, "eigh")
    rule = resolve(method, "eigh")
    with full_precision(A):
        w, V = decompose(widen(A), rule)
    return EighResult(w.to(real_dtype(A.dtype)), V.to(A.dtype))


def decompose(A: Tensor, rule: Method, operation: str = "eigh") -> tuple[Tensor, Tensor]:
    """Eigenpairs of ``A`` in working precision, differentiable by ``rule``; discarded pairs carry no gradient."""
    if iterative.iterates(rule):
        w, V, keep = iterative.power_iteration(from_lower(A, operation), rule)
        return without_gradient(w, V, keep)
    assert isinstance(rule, GapMethod)
    w, V = solvers.eigh(A.detach(), operation)
    w, V = attach(A, w, V, rule)
    return without_gradient(w, V, rule.kept(A, w, V))


def attach(A: Tensor, w: Tensor, V: Tensor, rule: GapMethod, support: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The eigenpairs (w, V) of ``A``, found without gradient, as functions of ``A`` that ``rule`` differentiates.

    Eigenvectors outside the mask ``support`` (*, d) do not rotate among themselves.
    """
    if transforms.idle(A):
        return w, V
    result: tuple[Tensor, Tensor] = transforms.apply(_Eigh, _EighForward, A, w, V, support, rule)
    return result


def within(K: Tensor, support: Tensor | None) -> Tensor:
    """The gap matrix with zeros for pairs of which neither is in ``support``, whatever the rule makes of their tie."""
    if support is None:
        return K
    return torch.where(support.unsqueeze(-1) | support.unsqueeze(-2), K, 0)


def without_gradient(w: Tensor, V: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
    """Cut the gradient of the eigenpairs outside ``keep``."""
    if keep is None:
        return w, V
    return torch.where(keep, w, w.detach()), torch.where(keep.unsqueeze(-2), V, V.detach())


class _Eigh(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(A: Tensor, w: Tensor, V: Tensor, support: Tensor | None, rule: GapMethod) -> tuple[Tensor, Tensor]:
        return w.clone(), V.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        ctx.rule = inputs[4]
        ctx.save_for_backward(*output, inputs[3])
        ctx.save_for_forward(*output, inputs[3])
        transforms.skip_unused(ctx)

    @staticmethod
    def backward(ctx, gw, gV):  # type: ignore[no-untyped-def]
        w, V, support = ctx.saved_tensors
        if gw is None and gV is None:
            return None, None, None, None, None
        with full_precision(V):
            inner = torch.zeros_like(V)
            if gV is not None:
                coupling = V.mH @ gV
                sizes = gauge.column_norms(gV)
                gauge.watch(coupling, sizes, w, gw)
                if ctx.rule.filters_gauge:
                    coupling = gauge.drop_noise(coupling, sizes, w)
                inner = hermitian(ctx.rule.weighed(within(ctx.rule.gaps(w), support).mT, coupling))
                if not transforms.VMAP_TAKES_NONE:  # zeros may stand for None, and infinite gaps must not meet them
                    inner = torch.where((gV == 0).all(-1).all(-1)[..., None, None], 0, inner)
            if gw is not None:
                inner = inner + torch.diag_embed(gw.to(V.dtype))
            return V @ inner @ V.mH, None, None, None, None


class _EighForward(_Eigh):
    """:class:`_Eigh` with a forward-mode rule, which Dynamo does not trace."""

    @staticmethod
    def jvp(ctx, dA, *_):  # type: ignore[no-untyped-def]
        w, V, support = ctx.saved_tensors
        with full_precision(V):
            inner = V.mH @ hermitian(dA) @ V
            return inner.diagonal(dim1=-2, dim2=-1).real, V @ (within(ctx.rule.gaps(w), support).mT * inner)
