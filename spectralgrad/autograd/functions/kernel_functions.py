"""Roots, logarithm, exponential and powers by one kernel call, with a derivative that is one kernel call as well."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function, observation
from ...precision import full_precision, rank_tolerance
from ...solvers.symmetry import hermitian
from .. import existence
from . import divided_differences, frechet_derivative, square_root
from .domain import Domain
from .scalar_functions import LARGEST_POWER, Function, real_power, whole_power

_REAL = (torch.float32, torch.float64)


def by_kernel(A: Tensor, f: Function, domain: Domain, in_general: Callable[[], Tensor]) -> Tensor:
    """Return f(A) with exact divided differences in one kernel call.

    ``in_general()`` returns it for all matrices; it is called if there are any for which the kernel is not the way.
    """
    settings = domain.positive, domain.solver_rtol, domain.clamp, domain.dtype
    found = None if f.kernel is None else solvers.function_and_eigenpairs(A, f.kernel, *settings)
    if found is None:
        return in_general()
    (S, w, V), doubtful = found
    restricted = domain.positive or domain.rtol is not None
    if not doubtful:
        return _attached(A, S, w, V, f, restricted)
    good = S[..., :1, :1].isfinite()
    w, V = torch.where(good[..., 0], w, 1), torch.where(good, V, 0)  # their derivative has only to be finite
    return torch.where(good, _attached(A, S, w, V, f, restricted), in_general())


def at_once(A: Any, f: Function, positive: bool, rtol: float = -1.0) -> Tensor | None:
    """Return f(A) of the caller's matrices if one kernel call computes it, otherwise None; ``A`` may be anything."""
    found = with_eigenvalues(A, f, positive, rtol)
    return None if found is None else found[0]


def with_eigenvalues(A: Any, f: Function, positive: bool, rtol: float = -1.0) -> tuple[Tensor, Tensor] | None:
    """Return the same with the eigenvalues of the range, zero off it, which have no gradient."""
    if f.kernel is None:
        return None
    found = solvers.function_and_eigenpairs(A, f.kernel, positive, rtol, False, getattr(A, "dtype", None))
    return None if found is None or found[1] else (_attached(A, *found[0], f, positive or rtol >= 0), found[0][1])


def root_at_once(A: Any, operation: str, inverse: bool) -> Tensor | None:
    """Return the (inverse) square root in the same way."""
    found = square_root.at_once(A, operation, inverse)
    return None if found is None else found[0]


def power_at_once(A: Any, p: Any) -> Tensor | None:
    """Return A^p in the same way; for a whole number the matrices may be indefinite, and roots have their own way."""
    if torch.compiler.is_compiling() or type(A) is not Tensor or A.is_nested or A.dtype not in _REAL:
        return None
    if type(p) not in (int, float) or not abs(p) <= LARGEST_POWER:
        return None
    if abs(p) == 0.5:
        return root_at_once(A, "matrix_power", p < 0)
    if not float(p).is_integer():
        return at_once(A, _power(float(p), A.dtype), True)
    rtol = rank_tolerance(A.shape[-1], A.dtype) if p < 0 and A.dim() else -1.0
    return at_once(A, whole_power(int(p)), False, rtol)


@lru_cache(maxsize=256)
def _power(p: float, dtype: torch.dtype) -> Function:
    return real_power(torch.tensor(p, dtype=dtype, device="cpu"), p)


def _attached(A: Tensor, S: Tensor, w: Tensor, V: Tensor, f: Function, restricted: bool) -> Tensor:
    """Return S = f(A) with its gradient; if ``restricted``, f acts on the eigenvalues that are not zero."""
    if not (A.requires_grad and torch.is_grad_enabled()):
        return S
    result: Tensor = function.apply(_Direct, A, (S,), w, V, f, restricted)
    return result


class _Direct(function.DerivativeRule):
    """A function that the kernel has computed; its derivative is one kernel call as well."""

    keeps = "A w V f restricted"

    @staticmethod
    def forward(A: Tensor, S: tuple[Tensor], w: Tensor, V: Tensor, f: Function, restricted: bool) -> Tensor:
        return S[0]  # in a tuple: torch would take an input for a view, which cannot be modified in place

    @staticmethod
    def backward(ctx, gS):  # type: ignore[no-untyped-def]
        A, w, V = ctx.saved_tensors
        found = None
        if not observation.wanted() and not function.differentiating() and function.eager(gS):
            found = solvers.scalar_derivative(V, w, gS, ctx.f.kernel)
        return _direct_derivative(ctx, A, w, V, gS) if found is None else found, *[None] * 5


def _direct_derivative(ctx: Any, A: Tensor, w: Tensor, V: Tensor, gS: Tensor) -> Tensor:
    """The gradient of :class:`_Direct` from products in torch; it can be differentiated again."""
    support = w != 0 if ctx.restricted else torch.ones_like(w, dtype=torch.bool)
    with full_precision(V):
        G = hermitian(gS)
        values, gamma, curvature = divided_differences.on_range(ctx.f.differences, w, support)
        if observation.wanted():
            observation.tell(ctx, lambda: existence.of_cut(w, values, gamma, V.mH @ G @ V))
        if function.differentiating():
            return frechet_derivative.derivative(A, G, w, V, gamma, curvature)
        return solvers.function_derivative(V, gamma, G)
