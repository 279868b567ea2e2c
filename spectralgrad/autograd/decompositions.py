"""Eigenpairs and singular triplets as functions of a matrix, also if a loss uses the values alone.

A loss of vectors is differentiated as in :mod:`.eigen.vectors` and :mod:`.singular.vectors`, any number of times. If it
does not use them, as ``eigh(A).eigenvalues.log().sum()``, its gradient is computed as in :mod:`.eigen.values` or
:mod:`.singular.values`, which has an exact derivative at ties. In forward mode over reverse mode it is not known in
advance whether the vectors will be used. There the values come from a function of their own, with tangents that belong
to other vectors within a tie than those returned. A loss of both has no exact second derivative at a tie in any way; to
leave it as it is elsewhere, only values equal to rounding are grouped. Rules that are not exact for distinct values
determine the second derivatives of values as well.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import solvers
from ..dispatch import function
from ..solvers import Ties
from .eigen import values as eigenvalues
from .eigen.vectors import Eigh, replaced, without_gradient
from .gap_rule import GapRule
from .singular import values as singular_values
from .singular.functions import Triplets
from .singular.vectors import SVD


def eigenpairs(A: Tensor, rule: GapRule, operation: str) -> tuple[Tensor, Tensor]:
    """Return eigenpairs of ``A`` in working precision, differentiated by ``rule``; discarded pairs have no gradient."""
    w, V = function.apply(_Eigenpairs, A, None, None, None, rule, operation)
    if rule.exact_apart and eigenvalues.differentiated_twice(A):
        w = eigenvalues.values(A, rule, operation, Ties.ROUNDING)
    return without_gradient(w, V, rule.kept(A, w, V))


def eigenpairs_at_once(A: Tensor, rule: GapRule) -> tuple[Tensor, Tensor] | None:
    """Return the result of :func:`eigenpairs` if it needs no more than one call of the kernel, otherwise None."""
    found = solvers.eigh.at_once(A)
    if found is not None:
        return replaced(*found, rule)
    if not solvers.prepared(A):
        return None
    w, V = _Eigenpairs.run(A, None, None, None, rule, "eigh")
    return without_gradient(w, V, rule.kept(A, w, V))


def triplets(M: Tensor, rule: GapRule, operation: str = "svd") -> tuple[Tensor, Tensor, Tensor]:
    """Return U, S and Vh of matrices (*, m, n) in working precision, differentiated by ``rule``.

    Singular triplets that the rule discards carry no gradient.
    """
    U, S, Vh = function.apply(_Triplets, M, None, None, None, rule, operation)
    if rule.exact_apart and eigenvalues.differentiated_twice(M):
        S = singular_values.values(M, rule, operation, Ties.ROUNDING)
    keep = None if rule.keeps_all else rule.kept(M, S.flip(-1), M)
    if keep is None:
        return U, S, Vh
    keep = keep.flip(-1)
    return (
        torch.where(keep.unsqueeze(-2), U, U.detach()),
        torch.where(keep, S, S.detach()),
        torch.where(keep.unsqueeze(-1), Vh, Vh.detach()),
    )


def triplets_at_once(M: Tensor, rule: GapRule) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the result of :func:`triplets` if it needs no more than one call of the kernel, otherwise None."""
    found = solvers.svd.at_once(M)
    if found is None and rule.keeps_all and solvers.prepared_svd(M):
        result: tuple[Tensor, Tensor, Tensor] = _Triplets.run(M, None, None, None, rule, "svd")
        return result
    return found


class _Eigenpairs(Eigh):
    keeps = "w V support A rule"

    @staticmethod
    def backward(ctx, gw, gV):  # type: ignore[no-untyped-def]
        alone = gw is not None and gV is None and ctx.rule.exact_apart and function.reversed_again()
        if not alone:
            return Eigh.backward(ctx, gw, gV)
        w, V, _, A = ctx.saved_tensors
        Eigh.observed(ctx, (w, V), gw, gV)
        return eigenvalues.gradient(A, w, V.detach(), gw, ctx.rule), None, None, None, None, None


class _Triplets(SVD):
    keeps = "U S Vh M rule"

    @staticmethod
    def backward(ctx, gU, gS, gVh):  # type: ignore[no-untyped-def]
        alone = gS is not None and gU is None and gVh is None and ctx.rule.exact_apart and function.reversed_again()
        if not alone:
            return SVD.backward(ctx, gU, gS, gVh)
        U, S, Vh, M = ctx.saved_tensors
        SVD.observed(ctx, (U, S, Vh), (gU, gS, gVh))
        gM = singular_values.gradient(M, Triplets(U.detach(), S, Vh.detach()), gS, ctx.rule)
        return gM, None, None, None, None, None
