"""Functions of singular values and divided differences in the kernel, for eager calls.

Each function returns None where the kernel does not serve; the caller then uses its formula in torch, which compilers
and transforms see as well. The results carry no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..dispatch import function
from ..native import kernel
from ..native.functions import checked
from . import choice

_NODES = 6  # of the quadrature, as in native/divided.hpp
_LARGEST = 2**31 - 1  # the kernel counts pairs in 32 bits


class Plan(NamedTuple):
    """The C function for matrices of one shape and type, its sizes, and the shape of its result."""

    run: Any
    sizes: tuple[int, int, int]
    shape: tuple[int, ...]


def compose_singular(U: Tensor, values: Tensor, Vh: Tensor) -> Tensor | None:
    """Return U diag(values) Vh (*, m, n)."""
    plan = _plan(U, Vh.shape[-1]) if function.eager(U, values, Vh) else None
    if plan is None or not values.dtype == U.dtype == Vh.dtype:  # hooks on saved tensors may change types
        return None
    U, values, Vh, F = U.contiguous(), values.contiguous(), Vh.contiguous(), U.new_empty(*plan.shape)
    pointers = U.data_ptr(), None, Vh.data_ptr(), values.data_ptr(), None, None, None, F.data_ptr()
    checked("singular_function", plan.run(*pointers, *plan.sizes, torch.get_num_threads()))
    return F


def singular_derivative(G: Tensor, U: Tensor, S: Tensor, Vh: Tensor, joint: Tensor, outer: Tensor) -> Tensor | None:
    """Return the derivative (*, m, n) of a function of singular values in the direction G.

    Args:
        G: the direction, or the cotangent (*, m, n).
        U, S, Vh: the singular value decomposition.
        joint: divided differences (*, k, k).
        outer: f(σ)/σ (*, k).
    """
    given = G, U, S, Vh, joint, outer
    plan = _plan(U, Vh.shape[-1]) if function.eager(*given) else None
    if plan is None or any(x.dtype != U.dtype for x in given):
        return None
    G, U, S, Vh, joint, outer = (x.contiguous() for x in given)
    X = torch.empty_like(G)
    pointers = U.data_ptr(), S.data_ptr(), Vh.data_ptr(), None, joint.data_ptr(), outer.data_ptr(), G.data_ptr()
    checked("singular_function", plan.run(*pointers, X.data_ptr(), *plan.sizes, torch.get_num_threads()))
    return X


def _plan(U: Tensor, n: int) -> Plan | None:
    """Return what to call for left vectors U (*, m, k) of matrices (*, m, n), or None if the kernel is not used."""
    return None if kernel() is None or not U.is_cpu else _plan_of(U.shape, n, U.dtype)


@lru_cache(maxsize=1024)
def _plan_of(shape: torch.Size, n: int, dtype: torch.dtype) -> Plan | None:
    native, m = kernel(), shape[-2]
    small = 0 < m * n and math.isqrt(m * n) <= choice.GRADIENT_UP_TO
    if native is None or dtype not in (torch.float32, torch.float64) or not small or not shape.numel():
        return None
    return Plan(native.function("singular_function", dtype), (shape[:-2].numel(), m, n), (*shape[:-1], n))


def divided_differences(
    w: Tensor, values: Tensor, slope: Callable[[Tensor], Tensor], least: float = 0.0, finite: bool = False
) -> tuple[Tensor, Tensor] | None:
    """Return the divided differences (*, d, d) of f, and f(w)/w (*, d).

    f′ is evaluated once, at all values and at the quadrature nodes of all close pairs.

    Args:
        w: the values (*, d).
        values: f(w) (*, d).
        slope: the elementwise derivative of f.
        least: up to this share of the norm, f′(w) takes the place of f(w)/w.
        finite: replace results that are not finite by zero.
    """
    native, d = kernel() if _plain(w, w, values) else None, w.shape[-1]
    if native is None or not native.takes(w) or not 0 < w.numel() * d <= _LARGEST:
        return None
    w, values = w.contiguous(), values.contiguous()
    joint, ratio = w.new_empty(*w.shape, d), torch.empty_like(w)
    offsets = torch.empty(w.numel() // d + 1, dtype=torch.int64)
    run, tail = native.function("divided", w.dtype), (w.numel() // d, d, least, finite, torch.get_num_threads())
    head = w.data_ptr(), values.data_ptr(), joint.data_ptr(), offsets.data_ptr()
    close = checked("divided", run(0, *head, None, None, None, *tail))
    places = w.new_empty(w.numel() + _NODES * close)
    checked("divided", run(1, *head, places.data_ptr(), None, None, *tail))
    slopes = slope(places)
    if not _plain(w, slopes):
        return None
    checked("divided", run(2, *head, None, slopes.contiguous().data_ptr(), ratio.data_ptr(), *tail))
    return joint, ratio


def _plain(like: Tensor, *tensors: Tensor) -> bool:
    """True if the kernel can read the tensors: of the type of ``like``, without gradient, and nothing observes."""
    return function.reverse_only(*tensors) and all(x.dtype == like.dtype and not x.requires_grad for x in tensors)
