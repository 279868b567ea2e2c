r"""Matrix functions with exact first and second derivatives, also at ties.

Derivation. The first derivative multiplies entries in the eigenbasis by :math:`f[\lambda_i,\lambda_j]`; the second
is the symmetric bilinear map

.. math:: D^2f(A)[G,E]=V\Bigl(\sum_k f[\lambda_i,\lambda_k,\lambda_j]\,
          (\tilde G_{ik}\tilde E_{kj}+\tilde E_{ik}\tilde G_{kj})\Bigr)V^H,\qquad \tilde G=V^HGV .

(For a power, :math:`A^n` differentiated twice is a sum over two positions in the product, and the sums of powers are
the divided differences of :math:`\lambda^n`.) There is no division by a gap here either: for
:math:`\lambda_i=\lambda_k=\lambda_j` the coefficient is :math:`f''/2`. Both maps are self-adjoint, so reverse and
forward mode use the same two. The d×d×d coefficients are computed only when a second derivative is requested.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function, observation
from ...precision import full_precision
from ...solvers.products import composed, congruence, from_basis, in_basis
from ...solvers.symmetry import hermitian
from .. import existence
from . import divided_differences

_CHUNK = 2**18  # number of second-order coefficients per matrix held in memory at a time


def exact(A: Tensor, w: Tensor, V: Tensor, values: Tensor, gamma: Tensor, curvature: Tensor) -> Tensor:
    """Return V diag(values) Vᴴ as a function of ``A`` with exact first and second derivatives.

    Args:
        A: matrices (*, d, d); only their gradient is used, not their values.
        w: eigenvalues (*, d) without gradient, zero on a null space.
        V: eigenvectors (*, d, d) without gradient.
        values: f(λ) (*, d); may carry the gradient of f's parameters.
        gamma: divided differences (*, d, d).
        curvature: f″(λ) (*, d).
    """
    result: Tensor = function.apply(_Function, A, w, V, values, gamma, curvature)
    return result


def derivative(A: Tensor, G: Tensor, *spectrum: Tensor) -> Tensor:
    """Return Df(A)[G] for a Hermitian G, differentiable in ``A`` and ``G``; the spectrum is as in :func:`exact`."""
    result: Tensor = function.apply(_Derivative, A, G, *spectrum)
    return result


class _Function(function.DerivativeRule):
    keeps = "A w V gamma curvature values"

    @staticmethod
    def forward(A: Tensor, w: Tensor, V: Tensor, values: Tensor, gamma: Tensor, curvature: Tensor) -> Tensor:
        return composed(V, values, V.mH)

    @staticmethod
    def backward(ctx, gS):  # type: ignore[no-untyped-def]
        A, *spectrum, values = ctx.saved_tensors
        w, V, gamma, _ = spectrum
        with full_precision(V):
            G = hermitian(gS)
            if observation.wanted():
                observation.tell(ctx, lambda: existence.of_cut(w, values, gamma, in_basis(V, G)))
            diagonal = ((V.mH @ G).mT * V).sum(-2).real if ctx.needs_input_grad[3] else None
            gA = derivative(A, G, *spectrum) if function.differentiating() else solvers.function_derivative(V, gamma, G)
            return gA, None, None, diagonal, None, None

    @staticmethod
    def jvp(ctx, dA, dw, dV, dvalues, *_):  # type: ignore[no-untyped-def]
        A, *spectrum, _ = ctx.saved_tensors
        V = spectrum[1]
        with full_precision(V):
            dS = torch.zeros_like(A) if dA is None else derivative(A, hermitian(dA), *spectrum)
            return dS if dvalues is None else dS + composed(V, dvalues, V.mH)


class _Derivative(function.DerivativeRule):
    """Df(A)[G], linear and self-adjoint in G."""

    keeps = "A G w V gamma curvature"

    @staticmethod
    def forward(A: Tensor, G: Tensor, w: Tensor, V: Tensor, gamma: Tensor, curvature: Tensor) -> Tensor:
        return solvers.function_derivative(V, gamma, G)

    @staticmethod
    def backward(ctx, gX):  # type: ignore[no-untyped-def]
        A, G, w, V, gamma, curvature = ctx.saved_tensors
        with full_precision(V):
            Y = hermitian(gX)
            gA = function.apply(_SecondDerivative, A, G, Y, w, V, gamma, curvature) if ctx.needs_input_grad[0] else None
            gG = derivative(A, Y, w, V, gamma, curvature) if ctx.needs_input_grad[1] else None
            weights = (in_basis(V, G).conj() * in_basis(V, Y)).real if ctx.needs_input_grad[4] else None
            return gA, gG, None, None, weights, None

    @staticmethod
    def jvp(ctx, dA, dG, dw, dV, dgamma, _):  # type: ignore[no-untyped-def]
        A, G, w, V, gamma, curvature = ctx.saved_tensors
        with full_precision(V):
            dX = torch.zeros_like(G) if dG is None else derivative(A, dG, w, V, gamma, curvature)
            if dA is not None:
                dX = dX + function.apply(_SecondDerivative, A, G, hermitian(dA), w, V, gamma, curvature)
            return dX if dgamma is None else dX + congruence(V, dgamma, G)


class _SecondDerivative(function.DerivativeRule):
    """D²f(A)[G, E]. A third derivative raises an error, since the spectrum is treated as constant here."""

    @staticmethod
    def forward(A: Tensor, G: Tensor, E: Tensor, w: Tensor, V: Tensor, gamma: Tensor, curvature: Tensor) -> Tensor:
        G, E = in_basis(V, G), in_basis(V, E)
        d = w.shape[-1]
        step = max(1, min(d, _CHUNK // max(1, d * d)))
        inner = torch.zeros_like(G)
        for k in range(0, d, step):  # one slab of the d×d×d coefficients at a time
            slab = slice(k, k + step)
            coefficients = divided_differences.second(w, gamma, curvature, slab).to(V.dtype)
            inner = inner + torch.einsum("...ikj,...ik,...kj->...ij", coefficients, G[..., :, slab], E[..., slab, :])
        return from_basis(V, inner + inner.mH)

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        raise NotImplementedError(_THIRD)

    @staticmethod
    def jvp(ctx, *_):  # type: ignore[no-untyped-def]
        raise NotImplementedError(_THIRD)


_THIRD = (
    "third derivatives of this matrix function are not implemented; matrix_sqrt, matrix_inv_sqrt and the polar "
    "factor of square matrices have derivatives of any order"
)
