"""Functions passed by the user: the check that they are elementwise, their derivatives and divided differences."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from inspect import iscode
from types import BuiltinFunctionType, FunctionType
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function
from ...dispatch.torch_internals import gradient_of_sum, in_transform
from ...errors import ArgumentError
from ...precision import quotient, resolved
from ..pairwise import differences, identity_mask, norm
from .divided_differences import Differences, Scalar
from .scalar_functions import Function

# Nodes and weights of the Gauss–Legendre quadrature on [−1, 1] with six nodes. (NumPy's have errors of 1e-15.)
_HALF = (
    (0.93246951420315203, 0.17132449237917035),
    (0.66120938646626451, 0.36076157304813861),
    (0.23861918608319691, 0.46791393457269105),
)
_CONSTANT = (torch, torch.special, torch.nn.functional, math)  # modules whose contents do not change
_passed: WeakSet[Any] = WeakSet()  # functions that were found to be elementwise
_vanishing: dict[torch.dtype, WeakSet[Any]] = defaultdict(WeakSet)  # functions that were found to be zero at zero
_GAUSS = tuple((sign * node, weight) for sign in (-1, 1) for node, weight in _HALF)


@dataclass(frozen=True)
class UserFunction(Function):
    """A function passed by the user.

    Attributes:
        divided: returns the divided differences (*, d, d) of eigenvalues w and f(w).
        curvature: the second derivative.
        plain_slope: the derivative, without a graph for parameters of f.
    """

    divided: Callable[[Tensor, Tensor], Tensor]
    curvature: Scalar
    plain_slope: Scalar


def smooth(f: Scalar, df: Scalar | None, where: str = "matrix_function", of: str = "eigenvalue") -> UserFunction:
    """Return a smooth function with its derivative and divided differences; torch differentiates f without ``df``.

    ``where`` and ``of`` are words of error messages: the operation, and what f is applied to.
    """
    f, df = elementwise(f, "f", where, of), None if df is None else elementwise(df, "df", where, of)
    plain = df if df is not None else _derivative(f, learns=False)

    def divided(w: Tensor, values: Tensor) -> Tensor:
        by_kernel = solvers.divided_differences(w, values, plain)
        if by_kernel is not None:
            return by_kernel[0]
        return general(w, values, _derivative(f, learns=True) if df is None and values.requires_grad else plain)

    def curvature(w: Tensor) -> Tensor:
        return _slope(plain, w)

    def all_differences(w: Tensor) -> Differences:
        values = f(w)
        return values, divided(w, values), curvature(w)

    slope = df if df is not None else lambda w: _derivative(f, f(w).requires_grad)(w)
    return UserFunction(f, slope, all_differences, divided, curvature, plain)


def general(w: Tensor, values: Tensor, derivative: Scalar) -> Tensor:
    r"""Return the divided differences of a smooth f: a quotient for distant pairs, otherwise the mean of f'.

    .. math:: f[a,b]=\int_0^1 f'(b+t(a-b))\,dt

    The integral is computed by six-point Gauss–Legendre quadrature for pairs within 20 % of each other, and where the
    quotient would cancel. It is used where it agrees with the quotient up to the quotient's rounding errors. Where
    it does not, f varies too fast for the quadrature, and the quotient is accurate. The kernel does the same for close
    pairs only (native/src/gradients/divided_differences.hpp).
    """
    i, j = torch.broadcast_tensors(w.unsqueeze(-1), w.unsqueeze(-2))
    gap = differences(w)
    size = torch.maximum(i.abs(), j.abs())
    height = torch.maximum(values.abs().unsqueeze(-1), values.abs().unsqueeze(-2))
    # With |f(a) − f(b)| below 1e-3 of |f|, or denormal, the quotient loses digits. The quadrature, which is accurate
    # for close pairs, replaces it if they are within 5 % of the norm.
    info = torch.finfo(w.dtype)
    cancelled = 1e-3 * height.clamp_min(1e3 * info.tiny)
    cancels = (differences(values).abs() <= cancelled) & (gap.abs() <= 0.05 * norm(w)[..., None, None])
    close = (gap.abs() <= 0.2 * size) | cancels | identity_mask(w)
    middle, half = i / 2 + j / 2, torch.where(close, gap, 0) / 2
    inside = torch.where(close, middle, i)  # evaluate f' only where it is used or at an eigenvalue
    mean = sum(derivative(inside + half * node) * (weight / 2) for node, weight in _GAUSS)
    step, noise = differences(values), 8 * info.eps * resolved(height)
    smooth = close & ~(((mean * gap - step).detach().abs() > noise) & step.isfinite())
    return torch.where(smooth, mean, quotient(step, gap, ~smooth))


def elementwise(f: Scalar, name: str, where: str = "matrix_function", of: str = "eigenvalue") -> Scalar:
    """Wrap ``f`` so that it raises :class:`ArgumentError` if it is not elementwise.

    The result must have the shape of the argument. It must be computed entry by entry, which is checked once, in
    eager mode, by calling ``f`` with the first and with the last entry alone. A Python function that has passed with
    different entries, and whose result cannot depend on anything but its argument, is not checked again in later calls.
    f must accept tensors of any shape. It gets a copy, which it may overwrite.
    """
    tried = False

    def checked(x: Tensor) -> Tensor:
        nonlocal tried
        values = f(x.clone())
        if isinstance(values, Tensor) and not values.is_floating_point():
            raise ArgumentError(f"{where}: expected {name} to return real floating-point numbers, got {values.dtype}")
        if not isinstance(values, Tensor) or values.shape != x.shape:
            got = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            raise ArgumentError(
                f"{where}: expected {name} to be elementwise, got {got} for {of}s of shape "
                f"{tuple(x.shape)}; it must take tensors of any shape"
            )
        if not tried and function.eager(x, values) and x.numel():
            tried = True
            if not (_is_fixed(f) and f in _passed):
                _check_ends(f, (name, where, of), x.detach().reshape(-1), values.reshape(-1))
        return values

    return checked


def _check_ends(f: Scalar, words: tuple[str, str, str], entries: Tensor, values: Tensor) -> None:
    """Compare ``values`` (n,), f of all ``entries`` (n,), with f of the first and of the last entry alone."""
    for at in (len(entries) - 1, 0):
        _compare_alone(f, words, entries.narrow(0, at, 1), values.narrow(0, at, 1))
    if _is_fixed(f) and entries[0].item() != entries[-1].item():
        _passed.add(f)


def check_origin(f: Scalar, like: Tensor, where: str) -> None:
    """Raise :class:`ArgumentError` unless f(0) = 0 up to rounding error in the type of ``like``; only in eager mode."""
    if not function.eager(like) or (_is_fixed(f) and f in _vanishing[like.dtype]):
        return
    origin = f(like.new_zeros(1)).item()
    if not abs(origin) <= 8 * torch.finfo(like.dtype).eps:
        raise ArgumentError(
            f"{where}: expected f(0) = 0, got {origin:.6g}: otherwise U f(S) Vᴴ is not defined "
            "where a singular value is zero. Subtract f(0), or pass rtol to apply f on the range only."
        )
    if _is_fixed(f):
        _vanishing[like.dtype].add(f)


def _is_fixed(f: Scalar) -> bool:
    """True if f is a function of torch, or a Python function of its argument, ``torch`` and ``math`` alone.

    What depends on other variables may change, such as a network that is first evaluated and then trained. So may what
    a function defined inside f depends on.
    """
    if not isinstance(f, FunctionType):
        return isinstance(f, BuiltinFunctionType)
    if f.__closure__ or f.__defaults__ or f.__kwdefaults__ or any(map(iscode, f.__code__.co_consts)):
        return False
    names = [f.__globals__[name] for name in f.__code__.co_names if name in f.__globals__]
    return all(any(x is module for module in _CONSTANT) for x in names)


def _compare_alone(f: Scalar, words: tuple[str, str, str], entry: Tensor, among: Tensor) -> None:
    """Raise :class:`ArgumentError` if ``f`` of one ``entry`` (1,) alone differs from its value ``among`` others."""
    alone, (name, where, of) = f(entry.clone()), words
    if alone.shape != (1,) or not _agree(alone.item(), among.item()):
        raise ArgumentError(
            f"{where}: expected {name} to be elementwise, got {among.item():.6g} for the {of} "
            f"{entry.item():.6g} among others and {alone.cpu().tolist()} for it alone"
        )


def _agree(x: float, y: float) -> bool:
    """True if two numbers are equal up to rounding errors, or both NaN. It is much cheaper than torch.allclose."""
    return x == y or (x != x and y != y) or abs(x - y) <= 1e-8 + 1e-3 * abs(y) < math.inf


def _derivative(f: Scalar, learns: bool) -> Scalar:
    """Return the derivative of f, with a graph for its argument and, if it ``learns``, for its parameters."""

    def df(x: Tensor) -> Tensor:
        if torch.compiler.is_dynamo_compiling() or in_transform():
            result: Tensor = torch.func.grad(lambda y: f(y).sum())(x)
            return result
        # Unlike torch.func.grad this works under saved-tensor hooks, which checkpointing uses.
        with torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext(), torch.enable_grad():
            y = x if x.requires_grad else (x.clone() if x.is_inference() else x.detach()).requires_grad_()
            values = f(y)
            if not learns and not x.requires_grad:
                return gradient_of_sum(values, y)
            (result,) = torch.autograd.grad(values, y, torch.ones_like(values), create_graph=True)
        return result

    return df


def _slope(df: Scalar, w: Tensor) -> Tensor:
    """Return the derivative of ``df`` at ``w``, by a five-point finite difference if torch cannot differentiate df.

    It is used only in second derivatives, for triples of nearly equal eigenvalues.
    """
    w = w.detach()
    try:
        return _derivative(df, learns=False)(w).detach()
    except RuntimeError:
        size = norm(w).unsqueeze(-1)
        eps = torch.finfo(w.dtype).eps
        # eps^(1/5) balances the truncation error h⁴ with the rounding error eps/h.
        h = eps**0.2 * torch.where(w.abs() > eps * size, w.abs(), torch.where(size > 0, size, 1))
        return (df(w - 2 * h) - 8 * df(w - h) + 8 * df(w + h) - df(w + 2 * h)).detach() / (12 * h)
