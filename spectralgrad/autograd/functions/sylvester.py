r"""Sylvester equations :math:`AX+XB=C`, with Hermitian A and B from their eigenpairs, and others from Schur forms.

Derivation. For Hermitian A and B, :math:`L(X)=AX+XB` is Hermitian with eigenvalues :math:`\lambda_i+\mu_j`. Pairs whose
sum vanishes are its null space, with projector N. :math:`X=L^+C`, and :math:`R=NC` is what has no solution. Within the
matrices for which the same pairs vanish,

.. math:: dX=L^+(dC-dL\,X)+L^+L^+dL\,R+N\,dL\,L^+X,\qquad dR=N(dC-dL\,X)-L^+dL\,R,\qquad dL(Y)=dA\,Y+Y\,dB .

A term :math:`\mathrm{Re}\langle E,dL(F)\rangle` is :math:`EF^H` for the gradient in A, and :math:`F^HE` for the one in
B. Both X and R are solutions of the same kind, so the derivative can be taken again. There are no eigenvalue gaps.

For other A and B the adjoint equation :math:`A^HH+HB^H=\bar X` gives :math:`\bar C=H`, :math:`\bar A=-HX^H` and
:math:`\bar B=-X^HH`. The Schur forms serve both equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function
from ...dispatch.recomputation import recomputed
from ...precision import full_precision, reciprocal
from ...solvers.symmetry import hermitian
from ..pairwise import norm


class Bases(NamedTuple):
    """Eigenvectors of A and of B, 1/(λᵢ + μⱼ), zero for pairs whose sum vanishes, and whether there may be such."""

    V: Tensor
    W: Tensor
    inverse: Tensor
    singular: bool = True

    @classmethod
    def of(cls, first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], rtol: float) -> Bases:
        """Return the bases of A and B with the given eigenpairs; sums up to ``rtol`` times the norms vanish."""
        (w, V), (u, W) = first, second
        sums, size = w.unsqueeze(-1) + u.unsqueeze(-2), rtol * (norm(w) + norm(u))
        if function.eager(w, u) and sums.numel():
            least = w[..., 0] + u[..., 0]  # eigenvalues ascend; without a positive one, look at all sums
            if not bool((least > size).all()):
                least = sums.abs().amin((-2, -1))
            if bool((least > size.clamp_min(4 * torch.finfo(w.dtype).tiny)).all()):
                return cls(V, W, sums.reciprocal_(), False)
        return cls(V, W, reciprocal(sums, size[..., None, None] < sums.abs()))


class Schur(NamedTuple):
    """Schur forms A = U T Uᴴ and B = W S Wᴴ."""

    T: Tensor
    U: Tensor
    S: Tensor
    W: Tensor


def of_hermitian(A: Tensor, B: Tensor | None, C: Tensor, bases: Bases) -> Tensor:
    """Solve AX + XB = C, or AX + XA = C if B is None; all batch dimensions are equal."""
    result: Tensor = function.apply(_Reverse, A, B, C, *bases)
    return result


def of_general(A: Tensor, B: Tensor, C: Tensor, schur: Schur, operation: str, adjoint: bool = False) -> Tensor:
    """Solve AX + XB = C, or AᴴX + XBᴴ = C if ``adjoint``; all batch dimensions are equal."""
    result: Tensor = function.apply(_General, A, B, C, *schur, operation, adjoint)
    return result


def _composed(
    A: Tensor, B: Tensor | None, C: Tensor, V: Tensor, W: Tensor, inverse: Tensor, singular: bool = True
) -> Tensor:
    other = A.view_as(A) if B is None else B  # Dynamo refuses the same tensor twice
    return _solve(A, other, C, Bases(V, W, inverse))[0]


def _solve(A: Tensor, B: Tensor, C: Tensor, bases: Bases) -> tuple[Tensor, Tensor]:
    """Return X and R, with derivatives of any kind."""
    result: tuple[Tensor, Tensor] = function.apply(_Hermitian, A, B, C, bases.V, bases.W, bases.inverse)
    return result


class _Reverse(function.ReverseRule):
    """First derivatives; without vanishing pairs, from X and H alone, and otherwise in the eigenbases."""

    composed = staticmethod(_composed)

    @staticmethod
    def forward(ctx, A, B, C, V, W, inverse, singular):  # type: ignore[no-untyped-def]
        with full_precision(V):
            inner = V.mH @ C @ W
            X = V @ (inverse * inner if singular else inner.mul_(inverse)) @ W.mH
        ctx.save_for_backward(A, B, C, V, W, inverse, X, inner if singular else None)
        return X

    @staticmethod
    def backward(ctx, G):  # type: ignore[no-untyped-def]
        A, B, C, V, W, inverse, X, inner = ctx.saved_tensors
        needed = ctx.needs_input_grad[:3]
        with full_precision(V):
            if function.differentiating():

                def again(A: Tensor, B: Tensor | None, C: Tensor) -> tuple[Tensor]:
                    return (_composed(A, B, C, V, W, inverse),)

                return *recomputed(again, (A, B, C), needed, (G,)), *[None] * 4
            G = V.mH @ G @ W
            H = V @ (G.mul_(inverse) if inner is None else inverse * G) @ W.mH
            if inner is None:
                gA, gB = _products(needed, B is None, [(-H, X)])
            else:
                gA, gB = _products(needed, B is None, _terms(G, inner, inverse))
                gA, gB = (None if g is None else Q @ g @ Q.mH for g, Q in ((gA, V), (gB, W)))
            return gA, gB, H, *[None] * 4


def _terms(G: Tensor, inner: Tensor, inverse: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the pairs (E, F) of the derivation in the eigenbases."""
    H, X, null = inverse * G, inverse * inner, inverse == 0
    return [(-H, X), (inverse * H, torch.where(null, inner, 0)), (torch.where(null, G, 0), inverse * X)]


def _products(
    needed: Sequence[bool], same: bool, pairs: list[tuple[Tensor, Tensor]]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the Hermitian parts of the sums of EFᴴ and of FᴴE, or of both together if A and B are the same."""
    halves = [(E / 2, F.mH) for E, F in pairs]
    left = [E @ F for E, F in halves] if needed[0] else []
    right = [F @ E for E, F in halves] if needed[0 if same else 1] else []
    return (_twice(left + right), None) if same else (_twice(left), _twice(right))


def _twice(halves: list[Tensor]) -> Tensor | None:
    """Return P + Pᴴ for the sum P of the terms, or None if there are none."""
    if not halves:
        return None
    P = reduce(torch.add, halves)
    return P + P.mH


class _Hermitian(function.DerivativeRule):
    results = "X R"
    keeps = "A B C V W inverse X R"

    @staticmethod
    def forward(A: Tensor, B: Tensor, C: Tensor, V: Tensor, W: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
        with full_precision(V):
            inner = V.mH @ C @ W
            return V @ (inverse * inner) @ W.mH, V @ torch.where(inverse == 0, inner, 0) @ W.mH

    @staticmethod
    def backward(ctx, gX, gR):  # type: ignore[no-untyped-def]
        A, B, _, V, W, inverse, X, R = ctx.saved_tensors
        with full_precision(V):
            (H, held), (Z, lost), (HH, _), (XX, _) = _each(A, B, Bases(V, W, inverse), (gX, gR, None, X))
            pairs = [(-H - lost, X), (HH - Z, R), (held, XX)]
            return *_products((True, True), False, pairs), H + lost, None, None, None

    @staticmethod
    def jvp(ctx, dA, dB, dC, *_):  # type: ignore[no-untyped-def]
        A, B, _, V, W, inverse, X, R = ctx.saved_tensors
        bases = Bases(V, W, inverse)
        with full_precision(V):
            dA, dB = hermitian(dA), hermitian(dB)
            XX = _solve(A, B, X, bases)[0]
            moved, missed, kept = (dA @ Y + Y @ dB for Y in (X, R, XX))
            first, second = (_solve(A, B, Y, bases) for Y in (dC - moved, missed))
            again = _solve(A, B, second[0], bases)[0]
            return first[0] + again + _solve(A, B, kept, bases)[1], first[1] - second[0]


def _each(A: Tensor, B: Tensor, bases: Bases, sides: tuple[Tensor | None, ...]) -> list[tuple[Tensor, Tensor]]:
    """Return the solutions for several right-hand sides; None stands for the solution for the first one."""
    found: list[tuple[Tensor, Tensor]] = []
    for side in sides:
        found.append(_solve(A, B, found[0][0] if side is None else side, bases))
    return found


class _General(function.DerivativeRule):
    results = "X"
    keeps = "A B T U S W X operation adjoint"

    @staticmethod
    def forward(
        A: Tensor,
        B: Tensor,
        C: Tensor,
        T: Tensor,
        U: Tensor,
        S: Tensor,
        W: Tensor,
        operation: str,
        adjoint: bool,
    ) -> Tensor:
        with full_precision(U):
            return U @ solvers.triangular_sylvester(T, S, U.mH @ C @ W, operation, adjoint) @ W.mH

    @staticmethod
    def backward(ctx, gX):  # type: ignore[no-untyped-def]
        A, B, *schur, X = ctx.saved_tensors
        with full_precision(A):
            H = of_general(A, B, gX, Schur(*schur), ctx.operation, not ctx.adjoint)
            gA, gB = (-X @ H.mH, -H.mH @ X) if ctx.adjoint else (-H @ X.mH, -X.mH @ H)
            return gA, gB, H, *[None] * 6

    @staticmethod
    def jvp(ctx, dA, dB, dC, *_):  # type: ignore[no-untyped-def]
        A, B, *schur, X = ctx.saved_tensors
        with full_precision(A):
            dA, dB = (dA.mH, dB.mH) if ctx.adjoint else (dA, dB)
            return of_general(A, B, dC - dA @ X - X @ dB, Schur(*schur), ctx.operation, ctx.adjoint)
