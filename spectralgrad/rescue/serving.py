"""Answers a call of torch that a ``TorchFunctionMode`` has intercepted with the function of this library."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..errors import IndefiniteError, NonFiniteError, SolverError
from ..rules import Method
from ..solvers import batch_invariant
from .replacements import REPLACEMENTS, call


def serve(
    mode: TorchFunctionMode, method: Method, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
) -> Any:
    """Return what replaces ``func(*args, **kwargs)``, or the result of ``func`` itself if nothing does.

    In eager mode the solvers are batch-invariant, because torch calls LAPACK matrix by matrix, and code may rely on it.
    """
    kwargs = kwargs or {}
    replacement = REPLACEMENTS.get(func)
    if replacement is None:
        return func(*args, **kwargs)
    for kind in types:
        if kind is not Tensor:
            # Torch calls a mode's handler before a subclass's handler, which then calls ``func`` on plain
            # tensors, or on its own with subclasses disabled. Both have to come back here.
            with mode:
                result = kind.__torch_function__(func, types, args, kwargs)
            return func(*args, **kwargs) if result is NotImplemented else result
    try:
        with nullcontext() if torch.compiler.is_compiling() else batch_invariant():
            result = call(replacement, method, args, kwargs)
    except (NonFiniteError, IndefiniteError, SolverError):
        result = NotImplemented
    return func(*args, **kwargs) if result is NotImplemented else result
