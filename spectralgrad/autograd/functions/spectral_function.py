r"""Functions of Hermitian matrices: :math:`f(A)=V\,\mathrm{diag}f(\lambda)\,V^H` with its exact gradient.

Derivation (Daleckiĭ and Kreĭn). In the eigenbasis :math:`df(A)_{ij}=f[\lambda_i,\lambda_j]\,dA_{ij}`. For a
power :math:`A^n` this holds because :math:`\sum_k\lambda_i^k\lambda_j^{n-1-k}` is the divided difference of
:math:`\lambda^n`; the general case follows by linearity and limits. The map is self-adjoint, so

.. math:: \bar A=V\bigl(\Gamma\circ V^H\bar SV\bigr)V^H,\qquad \Gamma_{ij}=f[\lambda_i,\lambda_j].

A paper's rule for eigenvectors, applied to f(A), is the same formula with
:math:`\hat\Gamma_{ij}=\hat K_{ij}(f_i-f_j)`, so one autograd function implements all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function
from ...precision import full_precision
from ...solvers.products import composed, from_basis, in_basis
from ...solvers.symmetry import hermitian
from ..eigen.vectors import attach
from ..gap_rule import GapRule
from ..pairwise import identity_mask
from . import beyond_range, divided_differences, frechet_derivative
from .domain import Domain, Spectrum
from .implied_differences import Implied, clamped_derivative, series_derivative
from .infinite_values import added, composed_values, composed_with_infinite, overflows, small_enough
from .scalar_functions import INV_SQRT, SQRT, Function
from .spectral_scale import Scaled, at_ordinary_size, completed, scaled
from .square_root import root_and_eigenpairs
from .user_functions import UserFunction


def exact(A: Tensor, f: Function, spectrum: Spectrum, eigenpairs: GapRule) -> Tensor:
    """Return f(A) with exact divided differences; f may have trainable parameters.

    Args:
        A: matrices (*, d, d).
        f: the function.
        spectrum: the eigenpairs of ``A`` without gradient.
        eigenpairs: the rule by which the eigenpairs are differentiated if f has trainable parameters.
    """
    found = scaled(f, spectrum)
    if found is None:
        return _exact(A, f, spectrum, eigenpairs)
    f_near = beyond_range.without_smallest(found.f, found)
    differences = lambda f, w: divided_differences.on_range(f.differences, w, spectrum.support)  # noqa: E731
    left = beyond_range.missing(A, f, spectrum, Scaled(f_near, found.spectrum, found.down, found.up), differences)
    call = lambda A, f: _exact(A, beyond_range.without_smallest(f, found), found.spectrum, eigenpairs)  # noqa: E731
    moved = lambda A: at_ordinary_size(call, A, found.f, f.degree, found.down, found.up)  # noqa: E731
    return completed(beyond_range.completed_derivative(moved, A, spectrum, left), f, spectrum, found)


def _exact(A: Tensor, f: Function, spectrum: Spectrum, eigenpairs: GapRule) -> Tensor:
    w, V, support = spectrum
    if function.needs_no_gradient(A):
        values = divided_differences.kept(f.value, w, support, assume=True)
        learns = values.requires_grad and _beyond_range(f, values)
        return _with_parameters(A, f, spectrum, values) if learns else composed_values(V, f, values)
    values, gamma, curvature = divided_differences.on_range(f.differences, w, support, assume=True)
    if not function.tracked(values):
        call = beyond_range.exact if overflows(f, values) else frechet_derivative.exact
        return call(A, torch.where(support, w, 0), V, values, gamma, curvature)
    if not _beyond_range(f, values):
        return _learning(A, f, spectrum, eigenpairs)
    X, Y = beyond_range.copies(A)
    rest = beyond_range.derivative(Y, torch.where(support, w, 0), V, _without_slopes(gamma, values), curvature)
    return added(_with_parameters(X, f, Spectrum(*attach(X, w, V, eigenpairs), support), values), rest)


def by_gap_rule(A: Tensor, rule: GapRule, f: Function, spectrum: Spectrum) -> Tensor:
    """Return f(A) with the divided differences implied by K̂; second derivatives use K̂ for the eigenpairs as well."""
    w, V, support = spectrum
    replaced = rule.replaced(w)
    if replaced is not None:
        w, support = replaced, torch.ones_like(support)
    keep = rule.kept(A, w, V) if replaced is None else None
    w = torch.where(support, w, 0)  # so that the gap between range and null space is λ, as for constant rank
    kept = support if keep is None else support & keep
    found = scaled(f, Spectrum(w, V, kept))
    if found is None or rule.saturates:
        return _by_implied(A, Implied(rule, f, kept, support, found), w, V)
    call = lambda A, f: _by_implied(A, Implied(rule, f, kept, support), found.spectrum.values, V)  # noqa: E731
    moved = lambda A: at_ordinary_size(call, A, found.f, f.degree, found.down, found.up)  # noqa: E731
    differences = lambda f, w: (w, Implied(rule, f, kept, support).gamma(w), 0 * w)  # noqa: E731
    left = beyond_range.missing(A, f, Spectrum(w, V, support), found, differences)
    near = beyond_range.completed_derivative(moved, A, Spectrum(w, V, support), left)
    return completed(near, f, Spectrum(w, V, kept), found)


def _by_implied(A: Tensor, implied: Implied, w: Tensor, V: Tensor) -> Tensor:
    values = implied.values(w)
    if function.tracked(values):
        return _learning_by_rule(A, implied, w, V, values)
    result: Tensor = function.apply(_ByRule, A, w, V, values, implied)
    return result


def _attached_by_rule(A: Tensor, w: Tensor, V: Tensor, values: Tensor, implied: Implied) -> Tensor:
    """Return the same from eigenpairs with the graph of ``A``."""
    S = implied.composed(w, V, values) if implied.rule.saturates else None
    w, V = attach(A, w, V, implied.rule, implied.range)
    if S is None:
        return _diagonal_by_values(A, w, V, implied.values(w), implied.gamma(w))
    result: Tensor = function.apply(_Saturating, A, S, V, implied.gamma(w))
    return result


def _learning_by_rule(A: Tensor, implied: Implied, w: Tensor, V: Tensor, values: Tensor) -> Tensor:
    """Return f(A) where f has trainable parameters; ``values`` is f(λ), where some may be infinite."""
    f, rule, plain = implied.f, implied.rule, Spectrum(w, V, implied.support)
    beyond = _beyond_range(f, values)
    X, Y = A, A
    if rule.saturates and (beyond or implied.found):
        Y = beyond_range.clamped(A)
        X = beyond_range.clamped(Y)  # before the sum as well: torch's sum of complex numbers would turn ∞ into NaN
    elif beyond:
        X, Y = beyond_range.copies(A)
    w, V = attach(X, w, V, rule, implied.range)
    gamma = implied.gamma(w)
    if implied.found is not None:
        S, gamma = _scaled_values(X, implied, implied.found), gamma.masked_fill(identity_mask(w), 0)
    elif beyond:
        S, gamma = _with_parameters(X, f, Spectrum(w, V, implied.support), values), _without_slopes(gamma, values)
    else:
        return _diagonal_by_values(A, w, V, implied.values(w), gamma)
    if not rule.saturates:
        return added(S, beyond_range.derivative(Y, plain.values, plain.vectors, gamma.detach(), torch.zeros_like(w)))
    S = added(S, function.apply(_Saturating, Y, torch.zeros_like(A), V, gamma))
    return S if implied.found is None else completed(S, f, plain, implied.found)


def _scaled_values(A: Tensor, implied: Implied, found: Scaled) -> Tensor:
    """Return f(A) with the gradient of the values f(λ), computed at ordinary size, and not of the eigenvectors."""

    def call(A: Tensor, f: Function) -> Tensor:
        w, V = attach(A, found.spectrum.values, found.spectrum.vectors, implied.rule, implied.range)
        values = divided_differences.kept(f.value, w, implied.support)
        return compose(A, w, V, values, torch.zeros_like(V.real))

    return at_ordinary_size(call, A, found.f, implied.f.degree, found.down, found.up)


def _beyond_range(f: Function, values: Tensor) -> bool:
    """True if values of a user's function are infinite, or so large that their slopes may be."""
    return isinstance(f, UserFunction) and overflows(f, values)


def _with_parameters(A: Tensor, f: Function, spectrum: Spectrum, values: Tensor) -> Tensor:
    """Return f(A) where ``values``, f(λ), may be infinite, with the gradient of small values and of parameters of f.

    Args:
        A: matrices (*, d, d).
        f: the function.
        spectrum: the eigenpairs as functions of ``A``.
        values: f(λ) (*, d).
    """
    w, V, support = spectrum
    near = beyond_range.values_with_parameters(f, w, support, values)
    S = compose(A, w, V, near, torch.zeros_like(V.real))
    return added(S, composed_with_infinite(V.detach(), torch.where(values.isinf(), values, 0).detach()))


def _without_slopes(gamma: Tensor, values: Tensor) -> Tensor:
    """Return the divided differences without the slopes that :func:`_with_parameters` applies."""
    return gamma.masked_fill(identity_mask(values) & small_enough(values).unsqueeze(-1), 0)


def root_by_series(A: Tensor, rule: GapRule, inverse: bool, domain: Domain) -> Tensor | None:
    """Return the root of :func:`by_gap_rule` if it takes one call of the kernel in each direction, otherwise None.

    The rule must have ``series_terms`` and keep all eigenvalues as they are.
    """
    if solvers.prepared(A):
        result: Tensor = _RootBySeries.run(A, rule, inverse, domain)
        return result
    settings = domain.operation, inverse, domain.solver_rtol, domain.clamp, domain.dtype
    found = solvers.root_and_eigenpairs.at_once(A, *settings)
    return None if found is None else found[0]


def _learning(A: Tensor, f: Function, spectrum: Spectrum, eigenpairs: GapRule) -> Tensor:
    """Return f(A) where f has trainable parameters: eigenpairs carry the graph of A, for mixed derivatives.

    First derivatives are always exact; mixed and second derivatives are exact where the eigenvalues are distinct.
    """
    w, V = attach(A, spectrum.values, spectrum.vectors, eigenpairs)
    values, gamma, _ = divided_differences.on_range(f.differences, w, spectrum.support)
    return _diagonal_by_values(A, w, V, values, gamma)


def _diagonal_by_values(A: Tensor, w: Tensor, V: Tensor, values: Tensor, gamma: Tensor) -> Tensor:
    """Differentiate the diagonal through f(w), which depends on the parameters of f, and the rest by ``gamma``."""
    return compose(A, w, V, values, gamma.masked_fill(identity_mask(w), 0))


class _ByRule(function.ReverseRule):
    """V diag(values) Vᴴ; Γ̂ is computed in the backward pass."""

    composed = staticmethod(_attached_by_rule)

    @staticmethod
    def forward(ctx, A, w, V, values, implied):  # type: ignore[no-untyped-def]
        ctx.implied = implied
        ctx.save_for_backward(A, w, V)
        return implied.composed(w, V, values)

    @staticmethod
    def backward(ctx, gS):  # type: ignore[no-untyped-def]
        A, w, V = ctx.saved_tensors
        with full_precision(V):
            if not function.differentiating():
                return ctx.implied.derivative(w, V, gS), None, None, None, None
            return ctx.implied.composed_derivative(A, w, V, gS), None, None, None, None


class _RootBySeries(function.ReverseRule):
    """The roots V f(λ) Vᴴ, computed by the kernel together with √λ, which is zero off the range."""

    @staticmethod
    def forward(ctx, A, rule, inverse, domain):  # type: ignore[no-untyped-def]
        R, s, V = root_and_eigenpairs(A, inverse, domain)
        ctx.rule, ctx.inverse = rule, inverse
        ctx.save_for_backward(A, s, V)
        return R

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        A, s, V = ctx.saved_tensors
        if not function.differentiating():
            return series_derivative(V, s, g, ctx.rule, ctx.inverse), None, None, None
        support = s > 0
        implied = Implied(ctx.rule, INV_SQRT if ctx.inverse else SQRT, support, support)
        with full_precision(V):
            return implied.composed_derivative(A, s.square(), V, g), None, None, None


def compose(A: Tensor, w: Tensor, V: Tensor, values: Tensor, gamma: Tensor) -> Tensor:
    """Return V diag(values) Vᴴ, differentiable in ``A`` by the divided differences ``gamma`` and in ``values``."""
    result: Tensor = function.apply(_Spectral, A, w, V, values, gamma)
    return result


class _Spectral(function.DerivativeRule):
    """V diag(values) Vᴴ with derivative Γ in A; (w, V) and Γ carry the graph of A for second derivatives."""

    keeps = "V gamma"

    @staticmethod
    def forward(A: Tensor, w: Tensor, V: Tensor, values: Tensor, gamma: Tensor) -> Tensor:
        return composed(V, values, V.mH)

    @staticmethod
    def backward(ctx, gS):  # type: ignore[no-untyped-def]
        V, gamma = ctx.saved_tensors
        with full_precision(V):
            inner = in_basis(V, hermitian(gS))
            return from_basis(V, gamma * inner), None, None, inner.diagonal(dim1=-2, dim2=-1).real, None

    @staticmethod
    def jvp(ctx, dA, dw, dV, dvalues, dgamma):  # type: ignore[no-untyped-def]
        V, gamma = ctx.saved_tensors
        with full_precision(V):
            inner = torch.zeros_like(V) if dA is None else gamma * in_basis(V, hermitian(dA))
            if dvalues is not None:
                inner = inner + torch.diag_embed(dvalues.to(V.dtype))
            return from_basis(V, inner)


class _Saturating(function.DerivativeRule):
    """A given f(A) with the clamped derivative Γ in A: what :class:`_ByRule` does, for transforms and compilers.

    V and Γ carry the graph of A for second derivatives.
    """

    keeps = "V gamma"

    @staticmethod
    def forward(A: Tensor, S: Tensor, V: Tensor, gamma: Tensor) -> Tensor:
        return S.clone()

    @staticmethod
    def backward(ctx, gS):  # type: ignore[no-untyped-def]
        V, gamma = ctx.saved_tensors
        return clamped_derivative(V, gamma, gS), None, None, None

    @staticmethod
    def jvp(ctx, dA, *_):  # type: ignore[no-untyped-def]
        V, gamma = ctx.saved_tensors
        return clamped_derivative(V, gamma, dA)
