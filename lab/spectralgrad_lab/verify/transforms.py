"""Transforms of torch on the device: vmap, forward mode, second derivatives, torch.compile, autocast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.func import grad, jvp, vmap

import spectralgrad as sg
from spectralgrad.diagnostics.every_function import loss
from spectralgrad.diagnostics.every_layer import layer_and_input
from spectralgrad.testing import with_spectrum

from .checks import Check, Skip, Wrong
from .target import Target

Function = Callable[[Tensor], Tensor]

FUNCTIONS: dict[str, Function] = {
    "eigvalsh": sg.eigvalsh,
    "svdvals": sg.svdvals,
    "matrix_sqrt": sg.matrix_sqrt,
    "matrix_inv_sqrt": sg.matrix_inv_sqrt,
    "matrix_log": sg.matrix_log,
    "polar": lambda A: sg.polar(A.cumsum(-1)),  # of a positive definite matrix it is the identity
    "spectral_projector": lambda A: sg.spectral_projector(A, 2),
}
# What a build of torch or a machine lacks for compiling; everything else is a failure.
_NO_COMPILER: tuple[str, ...] = (
    "InvalidCxxCompiler",
    "TritonMissing",
    "not find a working triton",
    "No compiler",
)
_NO_COMPILER += ("GPUTooOldForTriton", "compiler not found", "No module named 'triton'")


def matrices() -> Tensor:
    """Positive definite matrices (3, 4, 4) in float64."""
    return torch.stack([with_spectrum([0.5, 1.0, 2.0, 3.5], seed=seed) for seed in range(3)])


def _directions() -> Tensor:
    X = torch.cos(torch.arange(48, dtype=torch.float64).square()).view(3, 4, 4)
    return (X + X.mT) / 2


def _batched_gradient(call: Function, A: Tensor, E: Tensor) -> Tensor:
    return vmap(grad(loss(call)))(A)


def _forward_mode(call: Function, A: Tensor, E: Tensor) -> Tensor:
    return jvp(call, (A,), (E,))[1]


def _second_order(call: Function, A: Tensor, E: Tensor) -> Tensor:
    leaf = A.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(call)(leaf), leaf, create_graph=True)
    return torch.autograd.grad((first * E).sum(), leaf)[0]


def _mapped(call: Function, A: Tensor, E: Tensor) -> Tensor:
    return vmap(call)(A)


TRANSFORMS: dict[str, Callable[[Function, Tensor, Tensor], Tensor]] = {
    "vmap": _mapped,
    "vmap of grad": _batched_gradient,
    "jvp": _forward_mode,
    "second order": _second_order,
}


def _transformed(transform: str, call: Function, target: Target) -> str:
    """Compare with the CPU in float64."""
    A, E = matrices(), _directions()
    expected = TRANSFORMS[transform](call, A, E)
    found = TRANSFORMS[transform](call, *(target.put(x.to(target.wide)) for x in (A, E)))
    agree(found, expected)
    return ""


def agree(found: Tensor, expected: Tensor, tolerance: float | None = None) -> None:
    """Require a small relative difference of a result on the device from one on the CPU.

    Raises:
        Wrong: it is larger.
    """
    if tolerance is None:
        tolerance = 1e-9 if found.dtype == torch.float64 else 1e-3
    found, expected = found.detach().cpu().double(), expected.detach().cpu().double()
    if found.shape != expected.shape:
        raise Wrong(f"shape {(*found.shape,)} instead of {(*expected.shape,)}")
    error = float((found - expected).norm() / expected.norm())
    if not error <= tolerance:
        raise Wrong(f"relative error {error:.1e}, allowed are {tolerance:.0e}")


def _compiled(call: Function, backend: str, target: Target) -> str:
    A = matrices()
    expected = _gradient(call, A)
    try:
        torch.compiler.reset()
        compiled = torch.compile(call, backend=backend, fullgraph=True)
        found = _gradient(compiled, target.put(A.to(target.wide)))
    except Exception as problem:
        text = f"{type(problem).__name__}: {problem}"
        if any(word in text for word in _NO_COMPILER):
            raise Skip(f"torch.compile finds no compiler: {text.splitlines()[0]}") from problem
        raise
    agree(found, expected)
    return ""


def _gradient(call: Function, A: Tensor) -> Tensor:
    leaf = A.clone().requires_grad_()
    return torch.autograd.grad(loss(call)(leaf), leaf)[0]


def _autocast(call: Function, target: Target) -> str:
    """Functions of float32 matrices compute in float32 under autocast."""
    A = target.put(matrices().float())
    _require_autocast(target)
    with torch.autocast(target.device.type, torch.bfloat16):
        found = _gradient(call, A)
    agree(found, _gradient(call, matrices()))
    return ""


def _autocast_layer(name: str, target: Target) -> str:
    """A layer behind a product of autocast returns finite results close to those in float64."""
    _require_autocast(target)
    layer, X = layer_and_input(name)
    expected = layer(X)
    layer, X = layer_and_input(name, torch.float32)
    layer, X = layer.to(target.device), target.put(X).requires_grad_()
    with torch.autocast(target.device.type, torch.bfloat16):
        output = layer(X)
    output.float().square().sum().backward()
    if X.grad is None or not bool(X.grad.isfinite().all()):
        raise Wrong("the gradient is not finite")
    agree(output, expected, 0.05)
    return f"output in {output.dtype}".replace("torch.", "")


def _require_autocast(target: Target) -> None:
    if torch.bfloat16 not in target.dtypes:
        raise Skip("the device has no bfloat16")
    try:
        with torch.autocast(target.device.type, torch.bfloat16):
            return
    except (AssertionError, RuntimeError) as missing:
        raise Skip("torch has no autocast for this device") from missing


def checks(quick: bool) -> Iterator[Check]:
    """Every transform of every function; compiled with inductor unless ``quick``."""
    for transform in TRANSFORMS:
        for name, call in FUNCTIONS.items():
            yield Check("transforms", f"{transform}, {name}", partial(_transformed, transform, call))
    for name in ("matrix_sqrt", "polar"):
        for backend in ("aot_eager",) if quick else ("aot_eager", "inductor"):
            yield Check("transforms", f"compile with {backend}, {name}", partial(_compiled, FUNCTIONS[name], backend))
    for name, call in FUNCTIONS.items():
        yield Check("autocast", name, partial(_autocast, call))
    for name in ("DecorrelatedBatchNorm2d", "PCADenoising2d", "CovariancePooling-tangent", "WhiteningColoring2d"):
        yield Check("autocast", name, partial(_autocast_layer, name))
