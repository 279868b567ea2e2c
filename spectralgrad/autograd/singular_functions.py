r"""Functions of singular values, :math:`F(M)=U\,\mathrm{diag}f(\sigma)\,V^H`, with derivatives that involve no gap.

Derivation. The Hermitian matrix :math:`J=\begin{pmatrix}0&M\\M^H&0\end{pmatrix}` has the eigenvalues
:math:`\pm\sigma_i` with eigenvectors :math:`(u_i,\pm v_i)/\sqrt2`, and zero for the rest of the longer side. With the
odd extension :math:`f(-\sigma)=-f(\sigma)`, the upper right block of the matrix function :math:`f(J)` is
:math:`F(M)`. Hence the derivative of F is that of a matrix function: with :math:`P=U^HdM\,V`, its Hermitian part
:math:`P_h` and its skew part :math:`P_s`,

.. math:: dF=U\bigl(\Gamma^-\circ P_h+\Gamma^+\circ P_s\bigr)V^H+(I-UU^H)\,dM\,V\,\mathrm{diag}(f_i/\sigma_i)V^H,\qquad
          \Gamma^\mp_{ij}=\frac{f_i\mp f_j}{\sigma_i\mp\sigma_j}

for m ≥ n; :math:`\Gamma^-` becomes :math:`f'(\sigma)` where singular values are equal, and all weights become
:math:`f'(0)` where they vanish. The map is self-adjoint, so forward and reverse mode use the same. Its own derivative
is the second derivative of the matrix function :math:`f(J)` (:mod:`spectralgrad.autograd.frechet_derivative`).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..dispatch import function
from ..precision import full_precision
from . import frechet_derivative
from .pairwise import identity_mask


class Triplets(NamedTuple):
    """Left vectors (*, m, k), singular values (*, k) and right vectors (*, k, n), k = min(m, n)."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class Weights(NamedTuple):
    """A function of singular values and its divided differences.

    Attributes:
        values: f(σ) (*, k).
        joint: :math:`\\Gamma^-` (*, k, k), with f′(σ) on the diagonal.
        apart: :math:`\\Gamma^+` (*, k, k).
        outer: f(σ)/σ (*, k), the weights of what is orthogonal to all left or all right vectors.
        curvature: f″(σ) (*, k), for second derivatives only.
    """

    values: Tensor
    joint: Tensor
    apart: Tensor
    outer: Tensor
    curvature: Tensor


def compose(M: Tensor, triplets: Triplets, weights: Weights) -> Tensor:
    """Return U f(S) Vᴴ as a function of ``M`` with exact first and second derivatives.

    Args:
        M: matrices (*, m, n); only their gradient is used, not their values.
        triplets: their singular value decomposition without gradient.
        weights: the function, without gradient.
    """
    result: Tensor = function.apply(_SingularFunction, M, *triplets, *weights)
    return result


def compose_learning(M: Tensor, triplets: Triplets, weights: Weights) -> Tensor:
    """Return the same where f has parameters: triplets and weights carry their graphs, for mixed derivatives.

    The diagonal is differentiated through the values, which depend on the parameters of f, and the rest by the weights.
    First derivatives are exact; second derivatives are exact where the singular values are distinct.
    """
    joint = weights.joint.masked_fill(identity_mask(triplets.S), 0)
    U, _, Vh = triplets
    result: Tensor = function.apply(_Learning, M, U, Vh, weights.values, joint, weights.apart, weights.outer)
    return result


def sum_of(M: Tensor, total: Tensor, triplets: Triplets, slopes: Weights) -> Tensor:
    """Return ``total`` (*,), a sum of g(σ), as a function of ``M``; its gradient is U g′(S) Vᴴ with ``slopes`` g′."""
    result: Tensor = function.apply(_Sum, M, total, *triplets, *slopes)
    return result


def _product(U: Tensor, values: Tensor, Vh: Tensor) -> Tensor:
    return (U * values.to(U.dtype).unsqueeze(-2)) @ Vh


def formula(G: Tensor, U: Tensor, Vh: Tensor, joint: Tensor, apart: Tensor, outer: Tensor) -> Tensor:
    """The derivative in the direction G, in differentiable operations."""
    m, n = G.shape[-2:]
    UG, GV = U.mH @ G, G @ Vh.mH
    P = UG @ Vh.mH
    inner = (joint + apart) / 2 * P + (joint - apart) / 2 * P.mH
    if m > n:
        return (U @ inner + (GV - U @ P) * outer.unsqueeze(-2)) @ Vh
    if m < n:
        return U @ (inner @ Vh + outer.unsqueeze(-1) * (UG - P @ Vh))
    return U @ inner @ Vh


def _by_dilation(M: Tensor, G: Tensor, triplets: Triplets, weights: Weights) -> Tensor:
    """The same as the derivative of a matrix function of J, which can be differentiated once more."""
    m, n = M.shape[-2:]
    w, V = _eigenpairs(triplets, m, n)
    joint, apart, outer = weights.joint, weights.apart, weights.outer
    gamma = torch.cat([torch.cat([joint, apart], -1), torch.cat([apart, joint], -1)], -2)
    rest = abs(m - n)
    if rest:
        side = torch.cat([outer, outer], -1).unsqueeze(-1).expand(*gamma.shape[:-1], rest)
        corner = gamma.new_zeros((*gamma.shape[:-2], rest, rest))
        gamma = torch.cat([torch.cat([gamma, side], -1), torch.cat([side.mT, corner], -1)], -2)
    curvature = torch.cat([weights.curvature, -weights.curvature, w.new_zeros((*w.shape[:-1], rest))], -1)
    return frechet_derivative.derivative(_dilated(M), _dilated(G), w, V, gamma, curvature)[..., :m, m:]


def _dilated(M: Tensor) -> Tensor:
    """J = [[0, M], [Mᴴ, 0]]."""
    m, n = M.shape[-2:]
    return torch.nn.functional.pad(M, (m, 0, 0, n)) + torch.nn.functional.pad(M.mH, (0, n, m, 0))


def _eigenpairs(triplets: Triplets, m: int, n: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues (*, m + n) and eigenvectors of J, without gradient."""
    U, S, V = triplets.U, triplets.S, triplets.Vh.mH
    k, rest = S.shape[-1], abs(m - n)
    half = torch.cat([U, V], -2) / 2**0.5
    other = torch.cat([U, -V], -2) / 2**0.5
    vectors = torch.cat([half, other], -1)
    if rest:
        longer = torch.linalg.qr(U if m > n else V, mode="complete")[0][..., k:]
        vectors = torch.cat([vectors, torch.nn.functional.pad(longer, (0, 0, 0, n) if m > n else (0, 0, m, 0))], -1)
    return torch.cat([S, -S, S.new_zeros((*S.shape[:-1], rest))], -1), vectors


class _SingularFunction(function.DerivativeRule):
    @staticmethod
    def forward(
        M: Tensor,
        U: Tensor,
        S: Tensor,
        Vh: Tensor,
        values: Tensor,
        joint: Tensor,
        apart: Tensor,
        outer: Tensor,
        curvature: Tensor,
    ) -> Tensor:
        return _product(U, values, Vh)

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        M, U, S, Vh, *weights = ctx.saved_tensors
        with full_precision(U):
            if function.differentiating():
                gM = _by_dilation(M, g, Triplets(U, S, Vh), Weights(*weights))
            else:
                gM = formula(g, U, Vh, *weights[1:4])
            return gM, *[None] * 8

    @staticmethod
    def jvp(ctx, dM, *_):  # type: ignore[no-untyped-def]
        M, U, S, Vh, *weights = ctx.saved_tensors
        with full_precision(U):
            return _by_dilation(M, dM, Triplets(U, S, Vh), Weights(*weights))


class _Learning(function.DerivativeRule):
    """U diag(values) Vᴴ with the derivative of the weights in M, whose diagonal goes through the values."""

    @staticmethod
    def forward(
        M: Tensor, U: Tensor, Vh: Tensor, values: Tensor, joint: Tensor, apart: Tensor, outer: Tensor
    ) -> Tensor:
        return _product(U, values, Vh)

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        _, U, Vh, _, *weights = inputs
        ctx.save_for_backward(U, Vh, *weights)
        ctx.save_for_forward(U, Vh, *weights)

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        U, Vh, *weights = ctx.saved_tensors
        with full_precision(U):
            diagonal = ((U.mH @ g) * Vh.conj()).sum(-1).real
            return formula(g, U, Vh, *weights), None, None, diagonal, None, None, None

    @staticmethod
    def jvp(ctx, dM, dU, dVh, dvalues, *_):  # type: ignore[no-untyped-def]
        U, Vh, *weights = ctx.saved_tensors
        with full_precision(U):
            dF = U.new_zeros((*U.shape[:-1], Vh.shape[-1])) if dM is None else formula(dM, U, Vh, *weights)
            return dF if dvalues is None else dF + _product(U, dvalues, Vh)


class _Sum(function.DerivativeRule):
    @staticmethod
    def forward(
        M: Tensor,
        total: Tensor,
        U: Tensor,
        S: Tensor,
        Vh: Tensor,
        values: Tensor,
        joint: Tensor,
        apart: Tensor,
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
        return g[..., None, None] * _gradient(*ctx.saved_tensors), *[None] * 9

    @staticmethod
    def jvp(ctx, dM, *_):  # type: ignore[no-untyped-def]
        return (_gradient(*ctx.saved_tensors).conj() * dM).real.sum((-2, -1))


def _gradient(M: Tensor, U: Tensor, S: Tensor, Vh: Tensor, *slopes: Tensor) -> Tensor:
    with full_precision(U):
        if not function.differentiating():
            return _product(U, slopes[0], Vh)
        return compose(M, Triplets(U, S, Vh), Weights(*slopes))
