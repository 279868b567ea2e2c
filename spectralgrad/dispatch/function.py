"""How the autograd functions of this package work with Dynamo, torch.func and nested differentiation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import observation, older_torch, torch_internals
from .compiled import meet_numbers
from .torch_internals import in_forward_mode, in_transform, intercepted, is_batched, nested

_TENSORS = (Tensor, torch.nn.Parameter)
_BEYOND_GRADIENTS = (
    "forward mode and second derivatives of torch.func cannot be compiled, in older torch its gradients and vmap "
    "neither: torch.compile would return zeros or fail. Without fullgraph=True they are computed eagerly."
)


class DerivativeRule:
    """Base class of the derivatives in this package, for eager mode, transforms and compilers alike.

    A subclass defines the static methods ``forward`` (without ctx), ``backward`` and ``jvp`` of
    ``torch.autograd.Function``, states in the following attributes what they need, and is called by :func:`apply`.
    Three autograd functions are derived from it. (It is not an autograd function itself, because Dynamo does not read
    class attributes of those.) Only the one for Dynamo, which cannot wait, is made when the rule is defined; an import
    would wait for the others. ``traceable=False`` in the class statement is for rules that are never traced; their
    ``forward`` may have *args.

    Attributes:
        keeps: names of the parameters of ``forward`` and of the results that the derivatives need, as in "A w V".
            Tensors, by the annotation of the parameter, are in ``ctx.saved_tensors`` in this order, *args at the end;
            other parameters are attributes of ctx.
        results: names of the results. A result comes before a parameter of the same name.
        non_differentiable: names of the results that have no derivative.
        materialize_grads: whether cotangents that are missing are zeros; otherwise they are None.
        transformed: as defined, for the transforms of torch.func.
        traced: without ``jvp``, because Dynamo cannot trace a function that has one.
        run: for eager calls, with context and forward pass combined. This is faster: with a separate
            ``setup_context``, which the transforms need, torch binds the arguments again at every call.
    """

    keeps: ClassVar[str] = ""
    results: ClassVar[str] = "result"
    non_differentiable: ClassVar[str] = ""
    materialize_grads: ClassVar[bool] = True
    generate_vmap_rule = True
    forward: ClassVar[Callable[..., Any]]
    setup_context: ClassVar[Callable[..., None]]
    transformed: ClassVar[Any]
    traced: ClassVar[Any]
    run: ClassVar[Any]

    def __init_subclass__(cls, traceable: bool = True) -> None:
        super().__init_subclass__()
        if issubclass(cls, torch.autograd.Function):  # one of the three derived functions
            return

        # Without a gradient, Dynamo tells by the number of parameters whether ``forward`` has a ctx; if it cannot count
        # them, all arguments are shifted by one.
        parameters = inspect.signature(cls.forward).parameters
        if traceable and any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
            raise TypeError(
                f"{cls.__name__}.forward: expected named parameters, got *args, which torch.compile miscounts"
            )
        setup_context = _setup_context(cls, parameters)

        def forward(ctx: Any, *inputs: Any) -> Any:
            output = cls.forward(*inputs)
            setup_context(ctx, inputs, output)
            if observation.sources:
                observation.record(ctx)
            return output

        def setup_traced(ctx: Any, inputs: Any, output: Any) -> None:
            meet_numbers(inputs)
            setup_context(ctx, inputs, output)

        absent = torch.autograd.Function
        immediate = {"forward": staticmethod(forward), "setup_context": absent.setup_context}
        cls.setup_context = staticmethod(setup_context)
        cls.transformed = _OnFirstUse(cls, "transformed", lambda: older_torch.with_vmap_rule(_variant(cls, {})))
        cls.traced = _variant(cls, {"jvp": absent.jvp, "setup_context": staticmethod(setup_traced)})
        cls.run = _OnFirstUse(cls, "run", lambda: _unwrapped(_variant(cls, immediate)))


def _setup_context(rule: type[DerivativeRule], parameters: Mapping[str, inspect.Parameter]) -> Callable[..., None]:
    """Return the ``setup_context`` that a rule states. It calls nothing in Python, because every eager call runs it."""
    results, keeps, materialize = rule.results.split(), rule.keeps.split(), rule.materialize_grads
    names, several = [*results, *parameters], len(results) > 1
    starred = {name for name, p in parameters.items() if p.kind is p.VAR_POSITIONAL}
    tensors = {name for name, p in parameters.items() if str(p.annotation).startswith("Tensor")} | {*results}
    saved = [names.index(name) for name in keeps if name in tensors - starred]
    rest = min((names.index(name) for name in keeps if name in starred), default=len(names))
    attributes = [(name, names.index(name)) for name in keeps if name not in tensors]
    constant = [names.index(name) for name in rule.non_differentiable.split()]

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        given = (*output, *inputs) if several else (output, *inputs)
        kept = (*map(given.__getitem__, saved), *given[rest:])
        ctx.save_for_backward(*kept)
        ctx.save_for_forward(*kept)
        for name, place in attributes:
            setattr(ctx, name, given[place])
        if constant:
            ctx.mark_non_differentiable(*map(given.__getitem__, constant))
        if not materialize:
            ctx.set_materialize_grads(False)

    return setup_context


class ReverseRule:
    """Base class of derivatives for eager calls in reverse mode alone, which may keep more than inputs and results.

    ``forward`` has a ctx, as in torch, which may hold factors of the result or an inner graph. The gradients of
    :func:`spectralgrad.dispatch.recomputation.recomputed` can be differentiated again.

    Attributes:
        composed: the same in operations that torch differentiates. :func:`apply` calls it instead unless the call is
            :func:`reverse_only`; a rule without it is run by callers that have asked.
        run: as in :class:`DerivativeRule`.
    """

    composed: ClassVar[Callable[..., Any]]
    run: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not issubclass(cls, torch.autograd.Function):
            cls.run = _OnFirstUse(cls, "run", lambda: _unwrapped(_variant(cls, {})))


class _OnFirstUse:
    """An attribute of a class that is made, and replaced by what is made, when it is first read."""

    def __init__(self, owner: type, name: str, make: Callable[[], Any]) -> None:
        self.owner, self.name, self.make = owner, name, make

    def __get__(self, instance: object, kind: type | None = None) -> Any:
        made = self.make()
        setattr(self.owner, self.name, made)
        return made


def _unwrapped(function: Any) -> Any:
    """Return an autograd function's ``apply`` without torch's wrapper in Python, which only concerns transforms."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def _variant(rule: type, changed: dict[str, Any]) -> Any:
    return type(rule.__name__, (rule, torch.autograd.Function), changed)


def apply(rule: type[DerivativeRule | ReverseRule], *inputs: Any) -> Any:
    """Run the forward pass of a rule and record it for differentiation, in the way that the context of the call needs.

    Forward mode over forward mode raises an error: torch disables forward mode inside a ``jvp`` rule, so a term would
    be lost silently. So do forward mode and nested derivatives of torch.func in code that is compiled; there an error
    is a graph break that leads to eager mode.
    """
    # Dynamo names a tensor after the first variable it is in. Torch 2.6 confuses two inputs that are X and x.
    tensors = [tensor for tensor in inputs if not callable(tensor) and isinstance(tensor, Tensor)]
    if issubclass(rule, ReverseRule):
        return rule.run(*inputs) if reverse_only(*tensors) else rule.composed(*inputs)
    if needs_no_gradient(*tensors):
        return rule.forward(*inputs)
    if torch.compiler.is_compiling():
        if torch_internals.beyond_gradients():
            torch_internals.leave_graph(_BEYOND_GRADIENTS)
            raise NotImplementedError(_BEYOND_GRADIENTS)
        meet_numbers(inputs)
        return rule.traced.apply(*inputs)
    if not in_transform():
        return rule.run(*inputs)
    if nested("Jvp") > 1:
        raise NotImplementedError(
            "forward mode over forward mode (jacfwd of jacfwd, jvp of jvp) is not supported; "
            "use jacfwd of jacrev, torch.func.hessian, or reverse mode twice"
        )
    return rule.transformed.apply(*inputs)


def differentiating() -> bool:
    """True if the result of a backward pass may itself be differentiated, in reverse or forward mode."""
    return torch.is_grad_enabled() or in_forward_mode()


def reversed_again() -> bool:
    """True if the result of a backward pass may itself be differentiated, in reverse mode only, and not compiled."""
    return torch.is_grad_enabled() and not in_forward_mode() and not torch.compiler.is_compiling()


def eager(*tensors: Tensor, anywhere: bool = False) -> bool:
    """True if no compiler, tracer, transform, mode or tensor subclass intercepts calls on the tensors.

    The function behind a torch.library operator may then be called directly. Every such decision uses this predicate;
    :func:`spectralgrad.dispatch.torch_internals.intercepted` explains the test. Values may decide what is computed,
    and memory may be read, only on a CPU; with ``anywhere``, the tensors may be on an accelerator.
    """
    if anywhere:
        return not torch.compiler.is_compiling() and not torch_internals.intercepted(*tensors, anywhere=True)
    return not torch.compiler.is_compiling() and not intercepted(*tensors)


def unobserved(*given: object) -> bool:
    """True for tensors that carry no gradient, if nothing can observe how a result is computed from them."""
    if torch.compiler.is_compiling():
        return False
    for x in given:
        if type(x) not in _TENSORS or (x.requires_grad and torch.is_grad_enabled()):  # type: ignore[attr-defined]
            return False
    return not in_forward_mode() and not intercepted(*given)  # type: ignore[arg-type]


def recorded(x: object) -> bool:
    """True if ``x`` is a tensor that carries a gradient in reverse mode, and nothing else observes calls on it."""
    return (
        not torch.compiler.is_compiling()
        and type(x) in _TENSORS
        and x.requires_grad  # type: ignore[attr-defined]
        and torch.is_grad_enabled()
        and not in_forward_mode()
        and not intercepted(x)  # type: ignore[arg-type]
        and not torch.is_autocast_enabled("cpu")
    )


def exporting() -> bool:
    """True while torch.export or torch.onnx is exporting a program."""
    return torch_internals.is_exporting() or torch.onnx.is_in_onnx_export()


def transformed() -> bool:
    """True inside a transform of torch.func or in forward mode."""
    return in_transform() or in_forward_mode()


def reverse_only(*tensors: Tensor) -> bool:
    """True if a call is :func:`eager`, on any device, and only reverse mode can be requested."""
    return not torch.compiler.is_compiling() and not in_forward_mode() and not intercepted(*tensors, anywhere=True)


def needs_no_gradient(*tensors: Tensor) -> bool:
    """True if no gradient can be requested for any of the tensors, so that no autograd function is needed.

    This includes torch.jit.trace, whose result is for inference only: TorchScript cannot contain a Python autograd
    function.
    """
    if torch.compiler.is_dynamo_compiling():  # the program of torch.export has no derivatives
        return torch_internals.is_exporting() and not in_transform()
    if in_transform() or in_forward_mode():
        return False
    if torch.is_grad_enabled():
        for x in tensors:
            if x.requires_grad:
                return torch.jit.is_tracing()  # type: ignore[attr-defined,no-any-return]
    return True


def tracked(x: Tensor) -> bool:
    """True if ``x`` carries a gradient, in reverse or forward mode."""
    if x.requires_grad:
        return True
    if not in_forward_mode() or is_batched(x):  # a dual tensor cannot be unpacked under vmap
        return False
    return forward_ad.unpack_dual(x).tangent is not None
