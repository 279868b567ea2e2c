r"""Functions of singular values, :math:`F(M)=U\,\mathrm{diag}f(\sigma)\,V^H`, with derivatives that involve no gap.

Derivation. The Hermitian matrix :math:`J=\begin{pmatrix}0&M\\M^H&0\end{pmatrix}` has the eigenvalues
:math:`\pm\sigma_i` with eigenvectors :math:`(u_i,\pm v_i)/\sqrt2`, and zero for the rest of the longer side. With the
odd extension :math:`f(-\sigma)=-f(\sigma)`, the upper right block of the matrix function :math:`f(J)` is
:math:`F(M)`. Hence F is differentiated as a matrix function: with :math:`P=U^HdM\,V`, its Hermitian part
:math:`P_h` and its skew part :math:`P_s`,

.. math:: dF=U\bigl(\Gamma^-\circ P_h+\Gamma^+\circ P_s\bigr)V^H+(I-UU^H)\,dM\,V\,\mathrm{diag}(f_i/\sigma_i)V^H,\qquad
          \Gamma^\mp_{ij}=\frac{f_i\mp f_j}{\sigma_i\mp\sigma_j}

for m ≥ n; :math:`\Gamma^-` becomes :math:`f'(\sigma)` where singular values are equal, and all weights become
:math:`f'(0)` where they vanish. The map is self-adjoint, so forward and reverse mode use the same. Its own derivative
is the second derivative of the matrix function :math:`f(J)`
(:mod:`spectralgrad.autograd.functions.frechet_derivative`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function, observation
from ...native.derivative_calls import SingularScalar
from ...precision import full_precision, quotient
from ...solvers import products
from .. import existence
from ..functions import frechet_derivative
from ..functions.rescaling import overflowed, rescaled
from ..pairwise import identity_mask


class Triplets(NamedTuple):
    """Left vectors (*, m, k), singular values (*, k) and right vectors (*, k, n), k = min(m, n).

    The vectors are None where no gradient can be requested of a function of the values alone.
    """

    U: Tensor
    S: Tensor
    Vh: Tensor


def decomposed(M: Tensor, operation: str) -> Triplets:
    """Return the singular value decomposition of ``M`` without gradient."""
    M = M.detach()
    return Triplets(*solvers.svd(M, operation))


def of_any_size(
    M: Tensor, operation: str, call: Callable[..., Tensor], *levels: Tensor, values_only: bool = False
) -> Tensor:
    """Return ``call`` of M, its decomposition and ``levels`` (*, 1), also where a singular value overflows.

    It must be homogeneous of degree one in the matrices and the levels. With ``values_only`` the vectors are for the
    gradient alone, and not computed if none can be requested.
    """

    def parts(M: Tensor) -> Triplets:
        if values_only and function.needs_no_gradient(M):
            return Triplets(None, solvers.svdvals(M.detach(), operation), None)  # type: ignore[arg-type]
        return decomposed(M, operation)

    triplets = parts(M)
    e = overflowed(M, triplets.S)
    if e is None:
        return call(M, triplets, *levels)
    result: Tensor = rescaled(
        lambda M, *levels: call(M, parts(M), *levels),
        (M, *(x.expand(*e.shape, 1) for x in levels)),
        (e,) * (1 + len(levels)),
        (e,),
    )
    return result


class Weights(NamedTuple):
    """A function of singular values, and what its derivatives need, computed when it is called for.

    Attributes:
        values: f(σ) (*, k).
        pairs: returns :math:`\\Gamma^-` (*, k, k), with f′(σ) on the diagonal, and f(σ)/σ (*, k), the weights of
            what is orthogonal to all left or all right vectors.
        curvature: returns f″(σ) (*, k), for second derivatives only.
        kinks: returns the mask (*, k) of the singular values at which f has no derivative, for diagnostics only; None
            if there are none.
    """

    values: Tensor
    pairs: Callable[[], tuple[Tensor, Tensor]]
    curvature: Callable[[], Tensor]
    kinks: Callable[[], Tensor] | None = None

    def judged(self, S: Tensor, inner: Tensor) -> list[existence.Flaw]:
        """Judge the cotangent ``inner`` = UᴴḠV (*, k, k) of a function of the singular values S."""
        kinked = [] if self.kinks is None else existence.of_kinks(self.kinks(), inner)
        return existence.of_cut(S, self.values, self.pairs()[0], inner) + kinked


def compose(M: Tensor, triplets: Triplets, weights: Weights) -> Tensor:
    """Return U f(S) Vᴴ as a function of ``M`` with exact first and second derivatives.

    Args:
        M: matrices (*, m, n); only their gradient is used, not their values.
        triplets: their singular value decomposition without gradient.
        weights: the function, without gradient.
    """
    if function.needs_no_gradient(M):
        return composed(triplets.U, weights.values, triplets.Vh)
    last = (None, weights) if function.reverse_only(M) else (weights.curvature(), None)
    result: Tensor = function.apply(_SingularFunction, M, *triplets, weights.values, *weights.pairs(), *last)
    return result


def compose_known(M: Tensor, triplets: Triplets, known: SingularScalar, weights: Callable[[Tensor], Weights]) -> Tensor:
    """Return :func:`compose` of a function that the kernel has; its weights are only computed where they are needed."""
    F = solvers.function_of_values(known, *triplets) if function.reverse_only(M) else None
    if F is None:
        return compose(M, triplets, weights(triplets.S))
    if function.needs_no_gradient(M):
        return F
    result: Tensor = function.apply(_Known, M, *triplets, (F,), known, weights)
    return result


def compose_learning(M: Tensor, triplets: Triplets, weights: Weights) -> Tensor:
    """Return the same where f has parameters: triplets and weights carry their graphs, for mixed derivatives.

    The diagonal is differentiated through the values, which depend on the parameters of f, and the rest by the weights.
    First derivatives are exact; second derivatives are exact where the singular values are distinct.
    """
    joint, outer = weights.pairs()
    joint = joint.masked_fill(identity_mask(triplets.S), 0)
    result: Tensor = function.apply(_Learning, M, *triplets, weights.values, joint, outer)
    return result


def composed(U: Tensor, values: Tensor, Vh: Tensor) -> Tensor:
    """Return U diag(values) Vᴴ."""
    by_kernel = solvers.compose_singular(U, values, Vh)
    return products.composed(U, values, Vh) if by_kernel is None else by_kernel


def _apart(S: Tensor, outer: Tensor) -> Tensor:
    r"""Return :math:`\Gamma^+` (*, k, k): (fᵢ + fⱼ)/(σᵢ + σⱼ) is a mean of the ratios f(σ)/σ."""
    larger = torch.maximum(S.unsqueeze(-1), S.unsqueeze(-2))
    i, j = (quotient(x, larger, larger > 0) for x in (S.unsqueeze(-1), S.unsqueeze(-2)))  # the sum cannot overflow
    mean = quotient(i * outer.unsqueeze(-1) + j * outer.unsqueeze(-2), i + j, larger > 0)
    return torch.where(larger > 0, mean, (outer.unsqueeze(-1) + outer.unsqueeze(-2)) / 2)


def _derivative(G: Tensor, U: Tensor, S: Tensor, Vh: Tensor, joint: Tensor, outer: Tensor) -> Tensor:
    """The derivative in the direction G, by the kernel unless it has to be differentiated again."""
    by_kernel = None if function.differentiating() else solvers.singular_derivative(G, U, S, Vh, joint, outer)
    return _by_torch(G, U, S, Vh, joint, outer) if by_kernel is None else by_kernel


def _by_torch(G: Tensor, U: Tensor, S: Tensor, Vh: Tensor, joint: Tensor, outer: Tensor) -> Tensor:
    return formula(G, U, Vh, joint, _apart(S, outer), outer)


def formula(G: Tensor, U: Tensor, Vh: Tensor, joint: Tensor, apart: Tensor, outer: Tensor) -> Tensor:
    """Return the derivative in the direction G, from differentiable operations of torch."""
    m, n = G.shape[-2:]
    UG, GV = U.mH @ G, G @ Vh.mH
    P = UG @ Vh.mH
    inner = (joint + apart) / 2 * P + (joint - apart) / 2 * P.mH
    if m > n:
        return (U @ inner + (GV - U @ P) * outer.unsqueeze(-2)) @ Vh
    if m < n:
        return U @ (inner @ Vh + outer.unsqueeze(-1) * (UG - P @ Vh))
    return U @ inner @ Vh


def _by_dilation(M: Tensor, G: Tensor, triplets: Triplets, joint: Tensor, outer: Tensor, curvature: Tensor) -> Tensor:
    """Return the derivative in the direction G as the derivative of f(J), which can be differentiated once more."""
    m, n = M.shape[-2:]
    w, V = _eigenpairs(triplets, m, n)
    apart = _apart(triplets.S, outer)
    gamma = torch.cat([torch.cat([joint, apart], -1), torch.cat([apart, joint], -1)], -2)
    rest = abs(m - n)
    if rest:
        side = torch.cat([outer, outer], -1).unsqueeze(-1).expand(*gamma.shape[:-1], rest)
        corner = gamma.new_zeros((*gamma.shape[:-2], rest, rest))
        gamma = torch.cat([torch.cat([gamma, side], -1), torch.cat([side.mT, corner], -1)], -2)
    curvature = torch.cat([curvature, -curvature, w.new_zeros((*w.shape[:-1], rest))], -1)
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
    """U f(S) Vᴴ. In reverse mode f″ is left to ``lazy``: it is computed only if a second derivative is requested."""

    keeps = "M U S Vh joint outer curvature lazy"

    @staticmethod
    def forward(
        M: Tensor,
        U: Tensor,
        S: Tensor,
        Vh: Tensor,
        values: Tensor,
        joint: Tensor,
        outer: Tensor,
        curvature: Tensor | None,
        lazy: Weights | None,
    ) -> Tensor:
        return composed(U, values, Vh)

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        M, U, S, Vh, joint, outer, curvature = ctx.saved_tensors
        if ctx.lazy is not None and observation.wanted():
            observation.tell(ctx, lambda: ctx.lazy.judged(S, U.mH @ g @ Vh.mH))
        with full_precision(U):
            if function.differentiating():
                curvature = ctx.lazy.curvature() if curvature is None else curvature
                gM = _by_dilation(M, g, Triplets(U, S, Vh), joint, outer, curvature)
            else:
                gM = _derivative(g, U, S, Vh, joint, outer)
            return gM, *[None] * 8

    @staticmethod
    def jvp(ctx, dM, *_):  # type: ignore[no-untyped-def]
        M, U, S, Vh, *weights = ctx.saved_tensors
        with full_precision(U):
            return _by_dilation(M, dM, Triplets(U, S, Vh), *weights)


class _Known(function.DerivativeRule):
    """A function that the kernel has computed, in reverse mode; its derivative is one kernel call as well."""

    keeps = "M U S Vh known weights"

    @staticmethod
    def forward(
        M: Tensor,
        U: Tensor,
        S: Tensor,
        Vh: Tensor,
        F: tuple[Tensor],
        known: SingularScalar,
        weights: Callable[[Tensor], Weights],
    ) -> Tensor:
        return F[0]  # in a tuple: torch would take an input for a view, which cannot be modified in place

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        M, U, S, Vh = ctx.saved_tensors
        with full_precision(U):
            if observation.wanted():
                observation.tell(ctx, lambda: ctx.weights(S).judged(S, U.mH @ g @ Vh.mH))
            if function.differentiating():
                weights: Weights = ctx.weights(S)
                joint, outer = weights.pairs()
                return _by_dilation(M, g, Triplets(U, S, Vh), joint, outer, weights.curvature()), *[None] * 6
            found = solvers.derivative_of_values(ctx.known, g, U, S, Vh)
            return _derivative(g, U, S, Vh, *ctx.weights(S).pairs()) if found is None else found, *[None] * 6


class _Learning(function.DerivativeRule):
    """U diag(values) Vᴴ with the derivative of the weights in M, whose diagonal goes through the values."""

    keeps = "U S Vh joint outer"

    @staticmethod
    def forward(M: Tensor, U: Tensor, S: Tensor, Vh: Tensor, values: Tensor, joint: Tensor, outer: Tensor) -> Tensor:
        return composed(U, values, Vh)

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        U, S, Vh, *weights = ctx.saved_tensors
        with full_precision(U):
            diagonal = ((U.mH @ g) * Vh.conj()).sum(-1).real
            return _derivative(g, U, S, Vh, *weights), None, None, None, diagonal, None, None

    @staticmethod
    def jvp(ctx, dM, dU, dS, dVh, dvalues, *_):  # type: ignore[no-untyped-def]
        U, S, Vh, *weights = ctx.saved_tensors
        with full_precision(U):
            dF = U.new_zeros((*U.shape[:-1], Vh.shape[-1])) if dM is None else _by_torch(dM, U, S, Vh, *weights)
            return dF if dvalues is None else dF + products.composed(U, dvalues, Vh)
