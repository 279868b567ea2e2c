"""The protocol ``__torch_function__``: tensor-like arguments and modes may take a call over, as with torch.linalg."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch.overrides import handle_torch_function, has_torch_function

from .torch_internals import in_function_mode

P = ParamSpec("P")
R = TypeVar("R")


def overridable(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, handed over to an argument or a mode that implements ``__torch_function__``.

    A subclass of Tensor that leaves torch's own implementation in place is passed on: the operations inside honour it.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        if torch.compiler.is_compiling() or not has_torch_function(given) or _left_to_torch(given):
            return function(*args, **kwargs)
        return handle_torch_function(call, given, *args, **kwargs)

    call.__prepare_scriptable__ = lambda: refuse_script(f"spectralgrad.{function.__name__}")  # type: ignore[attr-defined]
    return call


def refuse_script(name: str) -> None:
    """Say what to do instead of torch.jit.script, which calls ``__prepare_scriptable__`` before it compiles."""
    raise RuntimeError(
        f"{name} cannot be compiled by TorchScript. Call it in a function decorated with @torch.jit.ignore, or use "
        "torch.export or torch.compile."
    )


def _left_to_torch(given: tuple[Any, ...]) -> bool:
    """True if no mode is active and no argument has an implementation of its own."""
    own = torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
    implementations = (getattr(type(x), "__torch_function__", None) for x in given)
    return not in_function_mode() and all(getattr(f, "__func__", f) in (None, own) for f in implementations)
