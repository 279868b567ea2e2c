r"""The derivative of a few eigenpairs at one end of the spectrum, from products with the operator.

Derivation. Only :math:`dA\,V` is needed. In the span of V it acts as in :mod:`..eigen.vectors`; orthogonal to it
:math:`(\lambda_i-A)\,dv_i=(I-VV^H)\,dA\,v_i`. The transposed map sends the cotangents of λ and V to the cotangent of
:math:`AV`,

.. math:: \overline{AV}=V\bigl(\mathrm{sym}(\hat K^\top\circ V^H\bar V)+\mathrm{diag}\,\bar\lambda\bigr)+Z,\qquad
          (\lambda_i-A)z_i=(I-VV^H)\bar v_i,\quad V^Hz_i=0 ,

and the operator's pullback at V continues from there to the tensors on which it depends.

The solve :math:`Z=S(R)` is a function of A, λ, V and R with a derivative of its own, which makes every order exact.
Differentiating :math:`V^HZ=0` and :math:`(I-VV^H)(Z\Lambda-AZ)=(I-VV^H)R`, and using :math:`AV=V\Lambda`, gives

.. math:: dZ=S\bigl(dR-dV\,V^HR+dA\,Z-Z\,d\Lambda\bigr)-V\,dV^HZ .

S is self-adjoint, so with :math:`U=S(\bar Z)` the transposed map is

.. math:: \bar R=U,\quad \bar V=-U(V^HR)^H-Z(V^H\bar Z)^H,\quad \bar\lambda_i=-\mathrm{Re}\,z_i^Hu_i,\quad
          \overline{AZ}=U .
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...dispatch import function, observation
from ...precision import full_precision
from ...solvers.large.matrix_entries import one_by_one
from .. import existence
from ..eigen.vectors import rotations
from ..gauge import column_norms
from .operators import Entries, Products, Tensors

Form = Entries | Products

HIDDEN = (
    "eigsh: the operator passes tensors to a torch.autograd.Function, where they cannot be found. It has a first "
    "derivative in reverse mode, but neither a second one nor forward mode. Write its product with torch functions, or "
    "use torch.func.grad."
)


def eigenpairs(form: Form, tensors: Tensors) -> tuple[Tensor, Tensor]:
    """Return eigenvalues (k,) and eigenvectors (n, k) of the operator as functions of the tensors."""
    rule = _Pairs if isinstance(form, Entries) else _PairsOfCallable
    w, V = function.apply(rule, form, *tensors)
    return w, V


def _solve(form: Form, tensors: Tensors, w: Tensor, V: Tensor, R: Tensor) -> Tensor:
    """Return Z = S(R) as a function of everything."""
    rule = _Solve if isinstance(form, Entries) else _SolveOfCallable
    Z: Tensor = function.apply(rule, form, w, V, R, *tensors)
    return Z


class _Pairs(function.DerivativeRule):
    """The eigenpairs of a matrix given by its entries."""

    results = "w V"
    keeps = "form w V values indices"
    materialize_grads = False

    @staticmethod
    def forward(form: Form, values: Tensor, indices: Tensor | None) -> tuple[Tensor, Tensor]:
        return form.eigenpairs((values, indices))

    @staticmethod
    def backward(ctx, gw, gV):  # type: ignore[no-untyped-def]
        w, V, *tensors = ctx.saved_tensors
        if gw is None and gV is None:
            return None, *[None] * len(tensors)
        if observation.wanted():
            observation.tell(ctx, lambda: _judged(ctx.form, tensors, w, V, gw, gV))
        with full_precision(V):
            return None, *ctx.form.pullback(tensors, V, _cotangent(ctx.form, tensors, w, V, gw, gV))

    @staticmethod
    def jvp(ctx, _, *changes):  # type: ignore[no-untyped-def]
        w, V, *tensors = ctx.saved_tensors
        with full_precision(V):
            dAV = ctx.form.pushforward(tensors, V, changes)
            inner = V.mH @ dAV
            dV = V @ (ctx.form.request.rule.gaps(w).mT * inner) + _solve(ctx.form, tensors, w, V, dAV)
            return inner.diagonal(dim1=-2, dim2=-1).real, dV


def _cotangent(form: Form, tensors: Tensors, w: Tensor, V: Tensor, gw: Tensor | None, gV: Tensor | None) -> Tensor:
    """Return the cotangent (n, k) of the product A V."""
    if gV is None:
        assert gw is not None
        return V * gw
    inner = rotations(w, V.mH @ gV, column_norms(gV), None, form.request.rule)
    if gw is not None:
        inner = inner + torch.diag_embed(gw.to(V.dtype))
    return V @ inner + _solve(form, tensors, w, V, gV)


def _judged(
    form: Form, tensors: Tensors, w: Tensor, V: Tensor, gw: Tensor | None, gV: Tensor | None
) -> list[existence.Flaw]:
    """Judge the cotangents together with the first eigenpair that was not asked for, which has none."""
    following = form.following(tensors, w, V)
    if following is not None:
        w, V = torch.cat([w, following[0]]), torch.cat([V, following[1]], -1)
        gw, gV = (None if g is None else torch.cat([g, torch.zeros_like(g[..., :1])], -1) for g in (gw, gV))
    return existence.of_eigenpairs(w, V, gw, gV)


class _Solve(function.DerivativeRule):
    """The solve Z = S(R) with a matrix given by its entries."""

    results = "Z"
    keeps = "form Z w V R values indices"

    @staticmethod
    def forward(form: Form, w: Tensor, V: Tensor, R: Tensor, values: Tensor, indices: Tensor | None) -> Tensor:
        return form.solve((values, indices), w, V, R)

    @staticmethod
    def backward(ctx, Y):  # type: ignore[no-untyped-def]
        Z, w, V, R, *tensors = ctx.saved_tensors
        with full_precision(V):
            U = _solve(ctx.form, tensors, w, V, Y)
            gV = -U @ (V.mH @ R).mH - Z @ (V.mH @ Y).mH
            gw = -(Z.conj() * U).sum(0).real
            return None, gw, gV, U, *ctx.form.pullback(tensors, Z, U)

    @staticmethod
    def jvp(ctx, _, dw, dV, dR, *changes):  # type: ignore[no-untyped-def]
        Z, w, V, R, *tensors = ctx.saved_tensors
        with full_precision(V):
            changed = ctx.form.pushforward(tensors, Z, changes) - dV @ (V.mH @ R) - Z * dw + dR
            return _solve(ctx.form, tensors, w, V, changed) - V @ (dV.mH @ Z)


class _PairsOfCallable(_Pairs, traceable=False):
    """The eigenpairs of a callable. Under vmap it is called for one element of the batch after the other."""

    keeps = "form w V tensors"
    generate_vmap_rule = False

    @staticmethod
    def forward(form: Form, *tensors: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return form.eigenpairs(tensors)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return one_by_one(lambda form, *tensors: eigenpairs(form, tensors), info.batch_size, in_dims, inputs)


class _SolveOfCallable(_Solve, traceable=False):
    """The solve with a callable; under vmap, one solve per element."""

    keeps = "form Z w V R tensors"
    generate_vmap_rule = False

    @staticmethod
    def forward(form: Form, w: Tensor, V: Tensor, R: Tensor, *tensors: Tensor) -> Tensor:  # type: ignore[override]
        return form.solve(tensors, w, V, R)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        def one(form: Form, w: Tensor, V: Tensor, R: Tensor, *tensors: Tensor) -> Tensor:
            return _solve(form, tensors, w, V, R)

        return one_by_one(one, info.batch_size, in_dims, inputs)


def attach(AV: Tensor, w: Tensor, V: Tensor, form: Products) -> tuple[Tensor, Tensor]:
    """Return the eigenpairs (w, V), given without gradient, as functions of ``AV``, the operator's product with V.

    This is for callables that hide the tensors on which they depend. A second derivative raises an error, because the
    graph of ``AV`` contains V as a constant.
    """
    result: tuple[Tensor, Tensor] = function.apply(_Attached, AV, w, V, form)
    return result


class _Attached(function.DerivativeRule):
    keeps = "AV w V form"
    materialize_grads = False

    @staticmethod
    def forward(AV: Tensor, w: Tensor, V: Tensor, form: Products) -> tuple[Tensor, Tensor]:
        return w.clone(), V.clone()

    @staticmethod
    def backward(ctx, gw, gV):  # type: ignore[no-untyped-def]
        AV, w, V = ctx.saved_tensors
        if gw is None and gV is None:
            return None, None, None, None
        if observation.wanted():
            observation.tell(ctx, lambda: _judged(ctx.form, ctx.form.closure.tensors, w, V, gw, gV))
        with torch.no_grad(), full_precision(V):
            G = _cotangent(ctx.form, ctx.form.closure.tensors, w, V, gw, gV)
        return function.apply(_Once, G, AV, gw, gV), None, None, None


class _Once(function.DerivativeRule):
    """The identity of G, which depends on the others in a way that has no derivative here."""

    @staticmethod
    def forward(G: Tensor, AV: Tensor, gw: Tensor | None, gV: Tensor | None) -> Tensor:
        return G.clone()

    @staticmethod
    def backward(ctx, _):  # type: ignore[no-untyped-def]
        raise NotImplementedError(HIDDEN)
