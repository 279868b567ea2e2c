"""Functions of singular values and divided differences in the kernel, for eager calls.

Each function returns None where the kernel is not used; the caller then uses its formula in torch, which compilers
and transforms see as well. The results carry no gradient. :mod:`spectralgrad.native.derivative_calls` has the
arguments.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ...dispatch import function
from ...native import derivative_calls, kernel
from ...native.derivative_calls import SingularDerivatives, SingularScalar
from ...native.functions import in_memory
from ..decompose import choice

_MOST = 2**31 - 1  # the kernel counts pairs in 32 bits


def compose_singular(U: Tensor, values: Tensor, Vh: Tensor) -> Tensor | None:
    """Return U diag(values) Vh (*, m, n)."""
    plan = _plan(U, Vh, values)
    return None if plan is None else plan.composed(in_memory(U), in_memory(values), in_memory(Vh))


def singular_derivative(G: Tensor, U: Tensor, S: Tensor, Vh: Tensor, joint: Tensor, outer: Tensor) -> Tensor | None:
    """Return the derivative (*, m, n) of a function of singular values in the direction G."""
    plan = _plan(U, Vh, G, S, joint, outer)
    return None if plan is None else plan.derivative(*map(in_memory, (G, U, S, Vh, joint, outer)))


def function_of_values(
    f: SingularScalar, U: Tensor, S: Tensor, Vh: Tensor, factor: Tensor | None = None
) -> Tensor | None:
    """Return U diag(f(S)) Vh (*, m, n) for a function that the kernel has, multiplied by ``factor`` (*,)."""
    others = (S,) if factor is None else (S, factor)
    plan = _plan(U, Vh, *others)
    if plan is None:
        return None
    return plan.function(f, in_memory(U), in_memory(S), in_memory(Vh), factor if factor is None else in_memory(factor))


def derivative_of_values(f: SingularScalar, G: Tensor, U: Tensor, S: Tensor, Vh: Tensor) -> Tensor | None:
    """Return the derivative (*, m, n) of U diag(f(S)) Vh in the direction G."""
    plan = _plan(U, Vh, G, S)
    return None if plan is None else plan.function_derivative(f, *map(in_memory, (G, U, S, Vh)))


def _plan(U: Tensor, Vh: Tensor, *others: Tensor) -> SingularDerivatives | None:
    """Return the calls if the kernel is used; hooks on saved tensors may have changed types."""
    dtype = U.dtype
    if not function.eager(U, Vh, *others) or [x for x in (Vh, *others) if x.dtype != dtype]:
        return None
    return choice.singular_derivatives(U, Vh, "function")


def divided_differences(
    w: Tensor, values: Tensor, slope: Callable[[Tensor], Tensor], least: float = 0, finite: bool = False
) -> tuple[Tensor, Tensor] | None:
    """Return the divided differences (*, d, d) of f, and f(w)/w (*, d), for f without gradient."""
    native = kernel() if w.is_cpu and function.reverse_only(w, values) else None
    if native is None or not native.takes(w) or not 0 < w.numel() * w.shape[-1] <= _MOST:
        return None
    if w.requires_grad or not _readable(values, w):
        return None

    def readable_slope(x: Tensor) -> Tensor | None:
        slopes = slope(x)
        return slopes if _readable(slopes, w) and function.eager(slopes) else None

    return derivative_calls.divided_differences(native, w, values, readable_slope, least, finite)


def _readable(x: Tensor, like: Tensor) -> bool:
    """True if ``x`` has the type of ``like`` and carries no gradient."""
    return x.dtype == like.dtype and not x.requires_grad
