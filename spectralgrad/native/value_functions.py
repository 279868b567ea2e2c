"""Functions of singular values, and divided differences of a function that the caller evaluates, in the kernel.

All tensors are of one type that the kernel takes, and their memory holds their values: no negative or conjugate views.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .functions import Kernel, checked


def compose_singular(native: Kernel, U: Tensor, values: Tensor, Vh: Tensor) -> Tensor:
    """Return U diag(values) Vh (*, m, n) for U (*, m, k), values (*, k) and Vh (*, k, n)."""
    U, values, Vh = _contiguous(U, values, Vh)
    F = U.new_empty(*U.shape[:-1], Vh.shape[-1])
    _singular(native, F, U.data_ptr(), None, Vh.data_ptr(), values.data_ptr(), None, None, None)
    return F


def singular_derivative(
    native: Kernel, G: Tensor, U: Tensor, S: Tensor, Vh: Tensor, joint: Tensor, outer: Tensor
) -> Tensor:
    """Return the derivative (*, m, n) of a function of singular values in the direction G.

    Args:
        native: the kernel.
        G: the direction (*, m, n).
        U, S, Vh: the singular value decomposition.
        joint: divided differences (*, k, k), symmetric.
        outer: f(σ)/σ (*, k).
    """
    G, U, S, Vh, joint, outer = _contiguous(G, U, S, Vh, joint, outer)
    X = torch.empty_like(G)
    weights = None, joint.data_ptr(), outer.data_ptr()
    _singular(native, X, U.data_ptr(), S.data_ptr(), Vh.data_ptr(), *weights, G.data_ptr())
    return X


def _contiguous(*tensors: Tensor) -> list[Tensor]:
    return [x if x.is_contiguous() else x.contiguous() for x in tensors]  # to ask costs less than to call in vain


def _singular(native: Kernel, result: Tensor, *pointers: int | None) -> None:
    sizes, run = (result.shape[:-2].numel(), *result.shape[-2:]), native.function("singular_function", result.dtype)
    checked("singular_function", run(*pointers, result.data_ptr(), *sizes, torch.get_num_threads()))


def divided_differences(
    native: Kernel,
    w: Tensor,
    values: Tensor,
    slope: Callable[[Tensor], Tensor | None],
    least: float = 0.0,
    finite: bool = False,
) -> tuple[Tensor, Tensor] | None:
    """Return the divided differences (*, d, d) of f, and f(w)/w (*, d); None if ``slope`` returns None.

    f′ is evaluated once, at all values and at the quadrature nodes of all close pairs.

    Args:
        native: the kernel.
        w: the values (*, d); at most 2³¹ pairs.
        values: f(w) (*, d).
        slope: the elementwise derivative of f, of a tensor in one dimension.
        least: up to this share of the norm, f′(w) takes the place of f(w)/w.
        finite: replace results that are not finite by zero.
    """
    (w, values), d = _contiguous(w, values), w.shape[-1]
    batch = w.numel() // d
    joint, ratio, offsets = w.new_empty(*w.shape, d), torch.empty_like(w), torch.empty(batch + 1, dtype=torch.int64)
    steps = native.constants
    run, tail = native.function("divided", w.dtype), (batch, d, least, finite, torch.get_num_threads())
    head = w.data_ptr(), values.data_ptr(), joint.data_ptr(), offsets.data_ptr()
    close = checked("divided", run(steps["quotients"], *head, None, None, None, *tail))
    places = w.new_empty(w.numel() + steps["quadrature_nodes"] * close)
    checked("divided", run(steps["nodes"], *head, places.data_ptr(), None, None, *tail))
    slopes = slope(places)
    if slopes is None:
        return None
    slopes = slopes.contiguous()
    checked("divided", run(steps["means"], *head, None, slopes.data_ptr(), ratio.data_ptr(), *tail))
    return joint, ratio
