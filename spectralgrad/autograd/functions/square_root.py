r"""The square root and the inverse square root, with exact derivatives of any order, also at ties.

Derivation. :math:`S^2=A` gives :math:`S\,dS+dS\,S=dA`, so the derivative of the square root solves a Lyapunov
equation in S itself, which is self-adjoint. Hence :math:`\bar A=X` with :math:`SX+XS=\bar S`, and
differentiating this equation requires only the same solve again:

.. math:: dX=\mathcal L_S^{-1}(dG-dS\,X-X\,dS).

Eigenvectors are used only to solve the equation. Their gradients are not needed, so no gap appears. For
:math:`Z=S^+`,

.. math:: dZ=-Z\,dS\,Z+Z^2\,dS\,N+N\,dS\,Z^2,\qquad N=I-SZ,

where N, the projector onto the null space, is zero for a regular matrix. For a singular matrix the derivative is
that within the matrices of the same rank: the equation is :math:`SX+XS=G-NGN` with :math:`NXN=0`, and N depends on S
by :math:`dN=-N\,dS\,Z-Z\,dS\,N`, which adds terms in :math:`NGN` and :math:`N(dS\,ZX+XZ\,dS)N`. Both
differentials consist of Z and N alone, so they can be differentiated any number of times.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function, status
from ...precision import doubled, full_precision, ldexp, moderate, reciprocal
from ...solvers.products import composed, congruence
from ...solvers.symmetry import hermitian
from .. import usual
from . import rescaling
from .domain import Domain


def exact_root(A: Tensor, inverse: bool, domain: Domain) -> Tensor:
    """Return the square root of ``A`` or its inverse, differentiable in ``A``."""
    return with_eigenpairs(A, inverse, domain)[0]


def with_eigenpairs(A: Tensor, inverse: bool, domain: Domain) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same with √λ and the eigenvectors, which have no gradient."""
    result: tuple[Tensor, Tensor, Tensor] = function.apply(
        _ExactRoot, A, inverse, domain, not A.is_cpu and status.assumed(A)
    )
    return result


def at_once(A: Any, operation: str, inverse: bool) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the same of the caller's matrices in one kernel call, or None; ``A`` may be anything."""
    dtype = getattr(A, "dtype", None)
    found = solvers.root_and_eigenpairs.at_once(A, operation, inverse, -1.0, False, dtype)
    if found is None and solvers.prepared(A):
        result: tuple[Tensor, Tensor, Tensor] = _ExactRoot.run(A, inverse, _default_domain(operation, A.dtype), False)
        return result
    return found


@lru_cache
def _default_domain(operation: str, dtype: torch.dtype) -> Domain:
    return Domain(operation, dtype=dtype)


def in_double(A: Tensor, domain: Domain) -> tuple[Tensor, Tensor, Tensor]:
    """Return the root, √λ and the eigenvectors in double precision, composed there from those in working precision.

    A root of a singular matrix that is rounded to single precision has full rank; in double precision the rounding
    errors on its null space would count, and be inverted.
    """
    R, s, V = with_eigenpairs(A, False, domain)
    if doubled(s) is s:
        return R, s, V
    root, s, V = doubled(R), doubled(s), doubled(V)
    precise = composed(V, s, V.mH)
    return precise if function.needs_no_gradient(R) else root + (precise - root).detach(), s, V


def root_and_eigenpairs(A: Tensor, inverse: bool, domain: Domain) -> tuple[Tensor, Tensor, Tensor]:
    """Return the root, √λ and the eigenvectors, without gradient."""
    settings = domain.operation, inverse, domain.solver_rtol, domain.clamp, domain.dtype
    return solvers.root_and_eigenpairs(A, *settings)


def plain_derivative(V: Tensor, s: Tensor, G: Tensor, inverse: bool, terms: int = 0, known: bool = False) -> Tensor:
    """Return the derivative of the root in the direction sym(G), exact or by SVD-Taylor; it has no derivative itself.

    :func:`spectralgrad.solvers.kernel.roots.root_derivative` has the arguments, and ``known`` is as in
    :func:`spectralgrad.autograd.functions.rescaling.derivative`.
    """

    def plain(s: Tensor, G: Tensor) -> Tensor:
        return solvers.root_derivative(V, s, G, inverse, terms)

    return rescaling.derivative(plain, s, G, _degree(inverse), known)


def _degree(inverse: bool) -> int:
    """The degree of the derivative in √λ."""
    return -3 if inverse else -1


def solve_lyapunov(S: Tensor, G: Tensor, s: Tensor, V: Tensor) -> Tensor:
    """Solve SX + XS = G for S = V diag(s) Vᴴ, differentiable in ``S`` and ``G``; X is zero within the null space."""
    return function.apply(_Lyapunov, S, G, s, V)


def inverse_and_projector(S: Tensor, s: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pseudo-inverse Z and the null-space projector N of S = V diag(s) Vᴴ, differentiable in ``S``."""
    result: tuple[Tensor, Tensor] = function.apply(_InverseAndProjector, S, s, V)
    return result


class _InverseAndProjector(function.DerivativeRule):
    results = keeps = "Z N"

    @staticmethod
    def forward(S: Tensor, s: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
        return composed(V, reciprocal(s, s > 0), V.mH), composed(V, s == 0, V.mH)

    @staticmethod
    def backward(ctx, gZ, gN):  # type: ignore[no-untyped-def]
        Z, N = ctx.saved_tensors
        with full_precision(Z):
            return _inverse_moved(Z, N, gZ) - N @ gN @ Z - Z @ gN @ N, None, None

    @staticmethod
    def jvp(ctx, dS, *_):  # type: ignore[no-untyped-def]
        Z, N = ctx.saved_tensors
        with full_precision(Z):
            return _inverse_moved(Z, N, dS), -N @ dS @ Z - Z @ dS @ N


def _inverse_moved(Z: Tensor, N: Tensor, dS: Tensor) -> Tensor:
    """Return the derivative of S ↦ Z in the direction ``dS``; it is self-adjoint."""
    return -Z @ dS @ Z + Z @ Z @ dS @ N + N @ dS @ Z @ Z


class _ExactRoot(function.DerivativeRule):
    results = "R s V"
    non_differentiable = "s V"
    keeps = "A R s V inverse domain assumed"
    materialize_grads = False

    @staticmethod
    def forward(A: Tensor, inverse: bool, domain: Domain, assumed: bool) -> tuple[Tensor, Tensor, Tensor]:
        R, s, V = root_and_eigenpairs(A, inverse, domain)
        if assumed:
            usual.moderate(s, -_degree(inverse))
        return R, s, V

    @staticmethod
    def backward(ctx, g, *_):  # type: ignore[no-untyped-def]
        if g is None:
            return None, None, None, None
        A, R, s, V = ctx.saved_tensors
        if function.differentiating():
            return _derivative(A, R, s, V, g, ctx.inverse, ctx.domain), None, None, None
        return plain_derivative(V, s, g, ctx.inverse, known=ctx.assumed), None, None, None

    @staticmethod
    def jvp(ctx, dA, *_):  # type: ignore[no-untyped-def]
        A, R, s, V = ctx.saved_tensors
        return _derivative(A, R, s, V, dA, ctx.inverse, ctx.domain), None, None


def _derivative(A: Tensor, R: Tensor, s: Tensor, V: Tensor, G: Tensor, inverse: bool, domain: Domain) -> Tensor:
    """Return the derivative of the root R of ``A`` in the direction sym(G), from differentiable operations.

    It is self-adjoint, so reverse and forward mode both use it.
    """
    with full_precision(V):
        G = hermitian(G)
        if moderate(s, 3) if function.eager(s) else function.exporting():
            return _solved_inverse(A, G, s, V, domain) if inverse else solve_lyapunov(R, G, s, V)
        e = rescaling.small_exponent(s, -3)
        near = ldexp(s, -e.unsqueeze(-1))
        if inverse:
            call, X, down, up = lambda A, G: _solved_inverse(A, G, near, V, domain), A, 2 * e, -3 * e
        else:
            call, X, down, up = lambda R, G: solve_lyapunov(R, G, near, V), R, e, -e
        result: Tensor = rescaling.rescaled(call, (X, G), (down, 0 * e), (up,))
        return result


def _solved_inverse(A: Tensor, G: Tensor, s: Tensor, V: Tensor, domain: Domain) -> Tensor:
    S = exact_root(A, False, domain)
    return solve_lyapunov(S, _inverse_moved(*inverse_and_projector(S, s, V), G), s, V)


class _Lyapunov(function.DerivativeRule):
    results = "X"
    keeps = "S G s V X"

    @staticmethod
    def forward(S: Tensor, G: Tensor, s: Tensor, V: Tensor) -> Tensor:
        return congruence(V, solvers.inverse_sums(s), G)

    @staticmethod
    def backward(ctx, gX):  # type: ignore[no-untyped-def]
        S, G, s, V, X = ctx.saved_tensors
        with full_precision(V):
            H = solve_lyapunov(S, gX, s, V)
            gS = -H @ X.mH - X.mH @ H
            inverse, null = inverse_and_projector(S, s, V)
            dropped, held = null @ G.mH @ null, null @ gX @ null
            gS = gS + inverse @ H @ dropped + dropped @ H @ inverse  # from dN in NGN, the part of G that is dropped
            gS = gS + held @ X.mH @ inverse + inverse @ X.mH @ held  # from dN in the constraint NXN = 0
            return gS, H, None, None

    @staticmethod
    def jvp(ctx, dS, dG, *_):  # type: ignore[no-untyped-def]
        S, G, s, V, X = ctx.saved_tensors
        with full_precision(V):
            inverse, null = inverse_and_projector(S, s, V)
            dropped = null @ G @ null
            rhs = dG - dS @ X - X @ dS + inverse @ dS @ dropped + dropped @ dS @ inverse
            return solve_lyapunov(S, rhs, s, V) + null @ (dS @ inverse @ X + X @ inverse @ dS) @ null
