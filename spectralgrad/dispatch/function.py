"""How the autograd functions of this package meet Dynamo and nested differentiation."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .torch_internals import in_forward_mode, in_transform, intercepted, is_batched, is_exporting, nested

VMAP_TAKES_NONE = torch.__version__ >= "2.13"  # tried with 2.13; the vmap rule that 2.6 generates fails on None


def apply(plain: Any, forward: Any, *inputs: Any) -> Any:
    """Call the autograd function ``plain``, or ``forward``, its subclass that adds a forward-mode rule.

    Dynamo does not trace functions with a forward-mode rule, so it gets the plain one. Torch switches forward
    mode off inside such a rule: forward mode over forward mode would silently lose a term, and is refused.
    """
    if idle(*(x for x in inputs if isinstance(x, Tensor))):
        return plain.forward(*inputs)
    if torch.compiler.is_compiling():
        return plain.apply(*inputs)
    if in_transform():
        if nested("Jvp") > 1:
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


def differentiating() -> bool:
    """Whether what a backward pass computes may itself be differentiated, in reverse or in forward mode."""
    return torch.is_grad_enabled() or in_forward_mode()


def skip_unused(ctx: Any) -> None:
    """Have None instead of zeros for gradients of outputs that were not used, where torch can pass it on."""
    if VMAP_TAKES_NONE or torch.compiler.is_compiling() or not nested("Vmap"):
        ctx.set_materialize_grads(False)


def eager(*tensors: Tensor) -> bool:
    """True if nothing stands between a call and its execution: no compiler, tracer, transform, mode or subclass.

    An operator of torch.library may then be skipped and the function behind it called. This is the one predicate that
    decides it; :func:`spectralgrad.dispatch.torch_internals.intercepted` says how it knows.
    """
    return not torch.compiler.is_compiling() and not intercepted(*tensors)


def exporting() -> bool:
    """True while torch.export or torch.onnx records a program."""
    return is_exporting() or torch.onnx.is_in_onnx_export()


def transformed() -> bool:
    """True inside a transform of torch.func or in forward mode."""
    return in_transform() or in_forward_mode()


def reverse_only(*tensors: Tensor) -> bool:
    """True if a call is :func:`eager` and only reverse mode can be requested."""
    return eager(*tensors) and not in_forward_mode()


def idle(*tensors: Tensor) -> bool:
    """True if no gradient can be requested for any of the tensors: no autograd function need stand around a result.

    What torch.jit.trace records is for inference: TorchScript cannot hold an autograd function of Python.
    """
    if torch.compiler.is_dynamo_compiling() or transformed():
        return False
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        return True
    return not (torch.is_grad_enabled() and any(x.requires_grad for x in tensors))


def tracked(x: Tensor) -> bool:
    """Whether ``x`` carries a gradient, in reverse or in forward mode."""
    if x.requires_grad:
        return True
    if not in_forward_mode() or is_batched(x):  # vmap cannot look; the rules can
        return False
    return forward_ad.unpack_dual(x).tangent is not None
