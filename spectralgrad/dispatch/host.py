"""Devices without double precision, such as Apple's MPS: what needs it is computed on the CPU.

The library promotes single precision to double in some places, and such devices also lack decompositions. Functions
that need either are marked by :func:`on_host_without_double`. Their matrices are copied to the CPU, and results and
gradients come back; everything else, such as the features of a layer, stays on the device.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from .torch_internals import in_dispatch_mode

P = ParamSpec("P")
R = TypeVar("R")

_SINGLE = {torch.float64: torch.float32, torch.complex128: torch.complex64}
_CPU = torch.device("cpu")


def has_double(device: torch.device) -> bool:
    """True if the device computes in float64. The only place that decides about this.

    Example:
        >>> has_double(torch.device("cpu")), has_double(torch.device("mps"))
        (True, False)
    """
    if device.type in ("cpu", "cuda", "meta"):
        return True
    if device.type == "mps" or torch.compiler.is_compiling():
        return device.type != "mps"
    return _tried(device) if in_dispatch_mode() else _doubles(device)  # a mode may answer for the device


@cache
def _doubles(device: torch.device) -> bool:
    return _tried(device)


def _tried(device: torch.device) -> bool:
    """Try it, which takes one operation: some of Intel's GPUs have no float64."""
    try:
        torch.ones(1, dtype=torch.float64, device=device).add(1)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return True


def on_host_without_double(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function compute on the CPU if its first argument is on a device without double precision. A decorator."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return computed(function, args, kwargs)

    return call


def computed(function: Callable[..., R], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> R:
    """Call a function, on the CPU if its first tensor is on a device without double precision."""
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    if not tensors or tensors[0].is_cpu or has_double(tensors[0].device):
        return function(*args, **kwargs)
    device = tensors[0].device
    _warn(device.type)
    args, kwargs = tree_map(lambda x: _to_host(x, device), (args, dict(kwargs)))
    return tree_map(lambda x: _from_host(x, device), function(*args, **kwargs))  # type: ignore[no-any-return]


def _to_host(x: Any, device: torch.device) -> Any:
    """A tensor on the CPU; a function of tensors there, if ``x`` is one, which computes on the device."""
    if isinstance(x, Tensor):
        return x.to(_CPU)
    if not inspect.isroutine(x) and not isinstance(x, torch.nn.Module):
        return x

    def back_and_forth(*given: Any) -> Any:
        found = x(*(_from_host(y, device) for y in given))
        return tree_map(lambda y: y.to(_CPU) if isinstance(y, Tensor) else y, found)

    return back_and_forth


def _from_host(x: Any, device: torch.device) -> Any:
    return x.to(device, _SINGLE.get(x.dtype, x.dtype)) if isinstance(x, Tensor) else x


@cache
def _warn(kind: str) -> None:
    """Say it once in a process."""
    warnings.warn(
        f"{kind} has no float64, so spectralgrad computes decompositions and functions of matrices on the CPU and "
        "copies the matrices there and back; layers keep their features on the device. This is said once.",
        UserWarning,
        stacklevel=5,
    )
