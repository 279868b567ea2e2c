"""What a function states or does for the case that torch.compile traces it; none of it loads the compiler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar, cast

import torch

F = TypeVar("F", bound=Callable[..., Any])


def constant_in_a_graph(call: F) -> F:
    """Let torch.compile call a function while it traces, and take the result for a constant. A decorator.

    ``torch.compiler.assume_constant_result`` does the same, but loads the compiler, which takes seconds.
    """
    call._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return call


def not_compiled(call: F) -> F:
    """Let torch.compile break the graph at a function and run it, and what it calls, as it is. A decorator.

    ``torch.compiler.disable`` at the definition would load the compiler, which takes seconds.
    """

    @wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        return (torch.compiler.disable(call) if "torch._dynamo" in sys.modules else call)(*args, **kwargs)

    run._torchdynamo_disable = True  # type: ignore[attr-defined]
    return cast(F, run)


def meet_numbers(x: object) -> None:
    """Use every float in the inputs of a rule once, before Dynamo traces the rule, and again in its forward pass.

    With ``dynamic=True`` a float that has a name outside the graph, such as the parameter of a method, becomes
    symbolic. Dynamo remembers it in the graph that uses it first. If that is the derivative of one function, the
    derivative of the next one cannot use it (``AssertionError: lift_tracked_freevar_to_input``, pytorch issue 193194).
    If the derivative uses it and the forward pass does not, torch 2.8 and 2.10 interchange it with a size there.
    Floats that are defaults of functions cannot be found here; those that derivatives call have integers instead.
    """
    if callable(x) or isinstance(x, int):  # Dynamo of torch 2.6 does not look into them
        return
    if isinstance(x, float):
        x + 0.0
    elif isinstance(x, tuple):
        for item in x:
            meet_numbers(item)
    elif hasattr(x, "__dataclass_fields__"):  # old Dynamo does not trace is_dataclass
        for field in fields(x):  # type: ignore[arg-type]
            meet_numbers(getattr(x, field.name))
