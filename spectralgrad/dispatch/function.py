"""How the autograd functions of this package meet Dynamo and nested differentiation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .torch_internals import in_forward_mode, in_transform, intercepted, is_batched, nested


class DerivativeRule:
    """Base of the derivatives of this package: one class for eager mode, transforms and compilers.

    A subclass writes the static methods ``forward`` (without ctx), ``setup_context``, ``backward`` and ``jvp`` of
    ``torch.autograd.Function``, and is called by :func:`apply`. Three autograd functions are made of it when it is
    defined. (It is none itself, because Dynamo does not look at the attributes of one.)

    Attributes:
        transformed: as it is written, for the transforms of torch.func.
        traced: without ``jvp``, because Dynamo does not trace a function that has one.
        immediate: context and forward pass in one, for eager calls. For a separate ``setup_context``, which the
            transforms need, torch binds the arguments anew at every call.
    """

    generate_vmap_rule = True
    forward: ClassVar[Callable[..., Any]]
    setup_context: ClassVar[Callable[..., None]]
    transformed: ClassVar[Any]
    traced: ClassVar[Any]
    immediate: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if issubclass(cls, torch.autograd.Function):  # one of the three
            return

        def forward(ctx: Any, *inputs: Any) -> Any:
            output = cls.forward(*inputs)
            cls.setup_context(ctx, inputs, output)
            return output

        absent = torch.autograd.Function
        cls.transformed = _variant(cls, {})
        cls.traced = _variant(cls, {"jvp": absent.jvp})
        cls.immediate = _variant(cls, {"forward": staticmethod(forward), "setup_context": absent.setup_context})


def _variant(rule: type[DerivativeRule], changed: dict[str, Any]) -> Any:
    return type(rule.__name__, (rule, torch.autograd.Function), changed)


def apply(rule: type[DerivativeRule], *inputs: Any) -> Any:
    """The forward pass of a rule, recorded for differentiation as the surroundings of the call need it.

    Torch switches forward mode off inside a forward-mode rule: forward mode over forward mode would silently lose a
    term, and is refused.
    """
    if needs_no_gradient(*(x for x in inputs if isinstance(x, Tensor))):
        return rule.forward(*inputs)
    if torch.compiler.is_compiling():
        return rule.traced.apply(*inputs)
    if not in_transform():
        return rule.immediate.apply(*inputs)
    if nested("Jvp") > 1:
        raise NotImplementedError(
            "forward mode over forward mode (jacfwd of jacfwd, jvp of jvp) is not supported; "
            "use jacfwd of jacrev, torch.func.hessian, or reverse mode twice"
        )
    return rule.transformed.apply(*inputs)


def differentiating() -> bool:
    """Whether what a backward pass computes may itself be differentiated, in reverse or in forward mode."""
    return torch.is_grad_enabled() or in_forward_mode()


def eager(*tensors: Tensor) -> bool:
    """True if nothing stands between a call and its execution: no compiler, tracer, transform, mode or subclass.

    An operator of torch.library may then be skipped and the function behind it called. This is the one predicate that
    decides it; :func:`spectralgrad.dispatch.torch_internals.intercepted` says how it knows.
    """
    return not torch.compiler.is_compiling() and not intercepted(*tensors)


def exporting() -> bool:
    """True while torch.export or torch.onnx records a program."""
    return torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export()


def transformed() -> bool:
    """True inside a transform of torch.func or in forward mode."""
    return in_transform() or in_forward_mode()


def reverse_only(*tensors: Tensor) -> bool:
    """True if a call is :func:`eager` and only reverse mode can be requested."""
    return eager(*tensors) and not in_forward_mode()


def needs_no_gradient(*tensors: Tensor) -> bool:
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
