r"""Functions of matrices of any scale: scale by a power of two before, compute, undo after.

A homogeneous function, :math:`F(2^{ep}X)=2^{eq}F(X)`, is computed for matrices of ordinary size, and the power of two
is undone at the very end. The gradient is :math:`2^{e(q-p)}` times the gradient at the scaled matrices. So no step in
between overflows or underflows, results and gradients are as accurate as at scale one wherever they are representable,
and ±inf where they are not. Powers of two are exact, so scaling adds no rounding error.

The eager backward pass also scales the cotangents: of several results, those that are too small to matter vanish.

Transforms, compilers and second derivatives differentiate through the powers of two. There a cotangent times
:math:`2^{eq}` could overflow before it is multiplied by :math:`2^{-ep}`. So all cotangents between the two are the true
ones times :math:`2^{-c}`, where c is the largest eq: leaving multiplies them by :math:`2^{eq-c}`, and entering by
:math:`2^{c-ep}`. The derivative of one step is the other, so this holds to any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor

from ...dispatch import function
from ...dispatch.recomputation import gradients, recomputed
from ...errors import common_shape, of_scaled
from ...precision import (
    all_ordinary,
    any_infinite,
    exponent,
    exponent_of,
    full_precision,
    largest,
    ldexp,
    moderate,
    moderate_limit,
)
from .. import usual

Call = Callable[..., Any]
Scale = tuple[Sequence[int], Sequence[float]]


def homogeneous(call: Call, inputs: Sequence[Tensor], *scales: Scale, trailing: Sequence[int] = ()) -> Any:
    """Return ``call(*inputs)``, computed for inputs of ordinary size; the ordinary case costs a look at the numbers.

    Args:
        call: a function of tensors that returns a tensor or a tuple of tensors.
        inputs: tensors whose batch dimensions broadcast.
        scales: pairs (powers, degrees), with p ≥ 0 for each input and q for each result: ``call`` of inputs times
            :math:`2^{ep}` is :math:`2^{eq}` times ``call(*inputs)``. Each pair has its own e; an input belongs to one.
        trailing: dimensions of each input that belong to one element of the batch; by default 2.
    """
    trailing = trailing or (2,) * len(inputs)
    scaled = zip(*(powers for powers, _ in scales), strict=True)
    some = [(x, t) for x, t, powers in zip(inputs, trailing, scaled, strict=True) if any(powers)]
    if function.eager(*inputs):
        if all(all_ordinary(x, t) for x, t in some):
            return call(*inputs)
    elif function.exporting() or all(usual.ordinary(x, t) for x, t in some):
        return call(*inputs)
    parts = [[part for part in zip(inputs, p, trailing, strict=True) if part[1]] for p, _ in scales]
    batch = common_shape(*(x.shape[: x.dim() - t] for x, t in zip(inputs, trailing, strict=True)))
    wide = [x.expand(*batch, *x.shape[x.dim() - t :]) for x, t in zip(inputs, trailing, strict=True)]
    exponents = [common_exponent(part).expand(batch) for part in parts]
    down, up = (
        [sum(e * x for e, x in zip(exponents, numbers, strict=True)) for numbers in zip(*rows, strict=True)]
        for rows in zip(*scales, strict=True)
    )
    return rescaled(call, wide, down, up)


def common_exponent(parts: Sequence[tuple[Tensor, int, int]]) -> Tensor:
    """The even exponent (*,) that makes the largest input about one; 0 where all of them are ordinary or zero."""
    like = parts[0][0]
    result, unusual = like.real.new_full((), -torch.inf), like.new_zeros((), dtype=torch.bool)
    for x, p, t in parts:
        size = largest(x, t)
        own = torch.where(size > 0, torch.ceil(exponent_of(size) / (2 * p)) * 2, -torch.inf)
        result = torch.maximum(result.to(own), own)
        unusual = unusual | (exponent(x, t) != 0)
    return torch.where(unusual & (result > -torch.inf), result, 0)


def rescaled(call: Call, inputs: Sequence[Tensor], down: Sequence[Tensor], up: Sequence[Tensor]) -> Any:
    """Return ``call`` of inputs times :math:`2^{-down}`, and each result times :math:`2^{up}`.

    Args:
        call: as in :func:`homogeneous`.
        inputs: tensors with the same batch dimensions.
        down: an exponent for each input, with the batch shape (*,).
        up: an exponent for each result.
    """
    if function.needs_no_gradient(*inputs) or any(map(function.tracked, up)):
        results = _composed(call, down, up, *inputs)
    else:
        results = function.apply(_Rescaled, call, tuple(down), tuple(up), *inputs)
    return results if len(results) > 1 else results[0]


def overflowed(M: Tensor, values: Tensor) -> Tensor | None:
    """Return exponents (*,) of matrices if one of them has an infinite eigenvalue or singular value, otherwise None.

    The norm of a matrix may overflow although no entry does. Only eager calls are checked.
    """
    return exponent(M) if function.eager(values) and values.numel() and any_infinite(values) else None


def derivative(
    call: Callable[[Tensor, Tensor], Tensor], s: Tensor, G: Tensor, degree: int, known: bool = False
) -> Tensor:
    """Return ``call(s, G)``, which is linear in the matrices G and homogeneous of negative degree in the numbers s.

    Args:
        call: returns matrices (*, m, n); its gradient is not scaled.
        s: numbers (*, d). Zeros do not matter, and the smallest of the others becomes about one.
        G: matrices (*, m, n).
        degree: of ``call`` in s.
        known: the numbers are moderate, as :func:`spectralgrad.autograd.usual.moderate` has assumed before.
    """
    if known or (moderate(s, abs(degree)) if function.eager(s) else function.exporting()):
        return call(s, G)
    e = small_exponent(s, degree)
    size = exponent(G) if function.eager(G) else 0 * e
    return _shifted(call(_shifted(s, -e), _shifted(G, -size)), size + e * degree)


def small_exponent(s: Tensor, degree: int) -> Tensor:
    """The even exponents (*,) of the smallest numbers that are not zero; 0 where all are :func:`moderate`."""
    size = s.detach().abs()
    if not s.shape[-1]:
        return s.new_zeros(s.shape[:-1])
    least, most = torch.where(size > 0, size, torch.inf).amin(-1), size.amax(-1)
    limit = moderate_limit(s.dtype, abs(degree))
    return torch.where((least <= 1 / limit) | (most >= limit), exponent_of(least), 0)


def normalized(S: Tensor) -> Tensor:
    """Return numbers (*, d) divided by a power of two if they are not of ordinary size."""
    unscaled = all_ordinary(S, 1) if function.eager(S) else usual.ordinary(S, 1)
    return S if unscaled else _shifted(S, -exponent(S, 1))


def _spread(e: Tensor, x: Tensor) -> Tensor:
    """The exponents (*,), with dimensions added such that they fit the tensor (*, ...)."""
    return e.reshape((*e.shape, *[1] * (x.dim() - e.dim())))


def _shifted(x: Tensor, e: Tensor) -> Tensor:
    return ldexp(x, _spread(e, x))


def _outputs(results: Any) -> tuple[Tensor, ...]:
    return (results,) if isinstance(results, Tensor) else tuple(results)


def _composed(call: Call, down: Sequence[Tensor], up: Sequence[Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
    """Return the results of ``call`` on scaled inputs, scaled back, in operations that autograd differentiates."""
    if any(map(function.tracked, up)):
        within: Any = _outputs(call(*(_shifted(x, -e) for x, e in zip(inputs, down, strict=True))))
        return tuple(_shifted(y, e) for y, e in zip(within, up, strict=True))
    common = reduce(torch.maximum, up)
    entered = [_moved(x, -e, common - e) for x, e in zip(inputs, down, strict=True)]
    with of_scaled(down[0]) if function.eager(*inputs) else nullcontext():
        results = _outputs(call(*entered))
    return tuple(_moved(y, e, e - common) for y, e in zip(results, up, strict=True))


def _moved(x: Tensor, e: Tensor, back: Tensor) -> Tensor:
    """Return x times 2ᵉ; cotangents are multiplied by 2 to the exponents ``back`` (*,)."""
    result: Tensor = function.apply(_Moved, x, e, back)
    return result


class _Moved(function.DerivativeRule):
    """See :func:`_moved`."""

    keeps = "e back"

    @staticmethod
    def forward(x: Tensor, e: Tensor, back: Tensor) -> Tensor:
        return _shifted(x, e)

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        e, back = ctx.saved_tensors
        return _moved(g, back, e), None, None

    @staticmethod
    def jvp(ctx, dx, *_):  # type: ignore[no-untyped-def]
        return _moved(dx, *ctx.saved_tensors)


class _Rescaled(function.ReverseRule):
    """The gradient is computed at the scaled inputs, in a graph kept since the forward pass, and scaled once."""

    composed = staticmethod(_composed)

    @staticmethod
    def forward(ctx, call, down, up, *inputs):  # type: ignore[no-untyped-def]
        needed = ctx.needs_input_grad[3:]
        leaves = [_shifted(x, -e).requires_grad_(n) for x, e, n in zip(inputs, down, needed, strict=True)]
        with torch.enable_grad(), of_scaled(down[0]):
            results = _outputs(call(*leaves))
        ctx.inner, ctx.settings = (leaves, results), (call, down, up)
        ctx.save_for_backward(*inputs)
        found = tuple(_shifted(y.detach(), e) for y, e in zip(results, up, strict=True))
        ctx.mark_non_differentiable(*(f for f, y in zip(found, results, strict=True) if not y.requires_grad))
        ctx.set_materialize_grads(False)
        return found

    @staticmethod
    def backward(ctx, *cotangents):  # type: ignore[no-untyped-def]
        needed, inputs = ctx.needs_input_grad[3:], ctx.saved_tensors
        if function.differentiating():
            with full_precision(inputs[0]):
                again = recomputed(partial(_composed, *ctx.settings), inputs, needed, cotangents)
            return None, None, None, *again
        (leaves, results), (_, down, up) = ctx.inner, ctx.settings
        return None, None, None, *_scaled_gradients(leaves, results, needed, cotangents, down, up)


Cotangents = Sequence[Tensor | None]


def _scaled_gradients(
    leaves: Sequence[Tensor],
    results: Sequence[Tensor],
    needed: Sequence[bool],
    cotangents: Cotangents,
    down: Sequence[Tensor],
    up: Sequence[Tensor],
) -> list[Tensor | None]:
    """The gradients from cotangents that are scaled, together, such that the largest of their products is about one."""
    batch = down[0].dim()
    present = [(g, e) for g, e in zip(cotangents, up, strict=True) if g is not None]
    if not present:
        return [None] * len(leaves)
    common = reduce(torch.maximum, [e for _, e in present])
    if function.eager(*(g for g, _ in present)):  # otherwise the cotangents are taken to be about one
        tops = [(largest(g, g.dim() - batch), e) for g, e in present]
        sizes = torch.stack([torch.where(top > 0, exponent_of(top) + e, -torch.inf) for top, e in tops]).amax(0)
        common = torch.where(sizes > -torch.inf, sizes, 0)
    scaled = [None if g is None else _shifted(g, e - common) for g, e in zip(cotangents, up, strict=True)]
    found = gradients(results, leaves, needed, scaled)
    return [None if g is None else _shifted(g, common - e) for g, e in zip(found, down, strict=True)]
