"""Support for ``__torch_function__``: tensor-like arguments and modes can override functions, as with torch.linalg."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch.overrides import handle_torch_function, has_torch_function

from . import host, status
from .arguments import argument_check
from .torch_internals import in_function_mode

P = ParamSpec("P")
R = TypeVar("R")


def overridable(
    function: Callable[P, R],
    accepts: Callable[[Any], bool] | None = None,
    at_once: Callable[..., R | None] | None = None,
) -> Callable[P, R]:
    """Let arguments and modes that implement ``__torch_function__`` override ``function``, or check its arguments.

    A decorator. A Tensor subclass that keeps torch's default implementation is passed to ``function``, whose operations
    handle it. Arguments are checked against the annotations, see :mod:`spectralgrad.dispatch.arguments`.

    Args:
        function: the function.
        accepts: tells which other arguments the function can use as they are.
        at_once: the function of its required arguments, with its defaults, in as few steps as possible. It is tried
            first and returns None for anything but an ordinary tensor, or if anything observes the call.
    """

    check, required = argument_check(function), at_once and at_once.__code__.co_argcount

    def watched(*args: Any, **kwargs: Any) -> Any:
        return status.run(function, args, kwargs, function.__name__)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if at_once is not None and not kwargs and len(args) == required:
            found = at_once(*args)
            if found is not None:
                return found
        given = (*args, *kwargs.values()) if kwargs else args
        if accepts is not None:
            given = tuple(x for x in given if not accepts(x))
        if torch.compiler.is_compiling() or not has_torch_function(given) or _left_to_torch(given):
            check(args, kwargs)
            if torch.compiler.is_compiling() or getattr(next(iter(args or kwargs.values()), None), "is_cpu", True):
                return function(*args, **kwargs)
            return host.computed(watched, args, kwargs)
        return handle_torch_function(call, given, *args, **kwargs)

    call.__prepare_scriptable__ = lambda: refuse_script(f"spectralgrad.{function.__name__}")  # type: ignore[attr-defined]
    return call


def shortened(at_once: Callable[..., R | None]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """:func:`overridable` with ``at_once``."""
    return lambda function: overridable(function, at_once=at_once)


def refuse_script(name: str) -> None:
    """Raise an error that names alternatives to torch.jit.script, which calls ``__prepare_scriptable__`` first."""
    raise RuntimeError(
        f"{name} cannot be compiled by TorchScript. Call it in a function decorated with @torch.jit.ignore, or use "
        "torch.export or torch.compile."
    )


def _left_to_torch(given: tuple[Any, ...]) -> bool:
    """True if no mode is active and no argument overrides torch's default ``__torch_function__``."""
    own = torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
    implementations = (getattr(type(x), "__torch_function__", None) for x in given)
    return not in_function_mode() and all(getattr(f, "__func__", f) in (None, own) for f in implementations)
