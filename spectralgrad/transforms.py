"""How the autograd functions of this package meet Dynamo and nested differentiation."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def apply(plain: Any, forward: Any, *inputs: Any) -> Any:
    """Call the autograd function ``plain``, or ``forward``, its subclass that adds a forward-mode rule.

    Dynamo does not trace functions with a forward-mode rule, so it gets the plain one. Torch switches forward
    mode off inside such a rule: forward mode over forward mode would silently lose a term, and is refused.
    """
    if torch.compiler.is_compiling():
        return plain.apply(*inputs)
    if torch._C._functorch.peek_interpreter_stack() is not None:
        if _forward_levels() > 1:
            raise NotImplementedError(
                "forward mode over forward mode (jacfwd of jacfwd, jvp of jvp) is not supported; "
                "use jacfwd of jacrev, torch.func.hessian, or reverse mode twice"
            )
        return forward.apply(*inputs)
    return _eager(forward).apply(*inputs)


@cache
def _eager(function: Any) -> Any:
    """The same autograd function with context and forward pass in one, which torch calls without a detour.

    (For a separate ``setup_context``, which its transforms need, torch binds the arguments anew at every call.)
    """

    def forward(ctx: Any, *inputs: Any) -> Any:
        output = function.forward(*inputs)
        function.setup_context(ctx, inputs, output)
        return output

    body = {"forward": staticmethod(forward), "setup_context": torch.autograd.Function.setup_context}
    return type(function.__name__, (function,), body)


def _forward_levels() -> int:
    from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

    kinds = [interpreter.key() for interpreter in retrieve_all_functorch_interpreters()]
    return sum(kind == torch._C._functorch.TransformType.Jvp for kind in kinds)


def differentiating() -> bool:
    """Whether what a backward pass computes may itself be differentiated, in reverse or in forward mode."""
    return torch.is_grad_enabled() or forward_ad._current_level >= 0


def plain(*tensors: Tensor) -> bool:
    """Whether nothing stands between a call and its execution: no compiler, transform, mode, subclass or vmap.

    An operator of torch.library may then be skipped and the function behind it called.
    """
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    if torch._C._len_torch_dispatch_stack():
        return False
    return all(type(x) is Tensor and not torch._C._functorch.is_legacy_batchedtensor(x) for x in tensors)


def transformed() -> bool:
    """Whether a transform of torch.func or forward mode is looking on."""
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def reverse_only() -> bool:
    """Whether only reverse mode can be asked for: no compiler, no transform of torch.func, no forward mode."""
    return not torch.compiler.is_compiling() and not transformed()


def idle(x: Tensor) -> bool:
    """Whether nobody can ask for a derivative in ``x``, so that no autograd function need stand around a result."""
    return not (x.requires_grad and torch.is_grad_enabled()) and reverse_only()


def tracked(x: Tensor) -> bool:
    """Whether ``x`` carries a gradient, in reverse or in forward mode."""
    if x.requires_grad:
        return True
    if forward_ad._current_level < 0 or torch._C._functorch.is_batchedtensor(x):  # vmap cannot look; the rules can
        return False
    return forward_ad.unpack_dual(x).tangent is not None
