"""All uses of private names of torch in this package.

Each has a fallback for versions of torch without that name: the answer that leads to the slower but correct path.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .compiled import constant_in_a_graph

P = ParamSpec("P")
R = TypeVar("R")

# The dispatch keys of an ordinary dense CPU tensor and of a thread in which nothing intercepts calls.
_ORDINARY = ("CPU", "ADInplaceOrView", "AutogradCPU", "AutocastCPU", "BackendSelect")
_ON_ACCELERATORS = [f"{on}{device}" for device in ("CUDA", "XPU", "PrivateUse1") for on in ("", "Autograd", "Autocast")]

# Looked up once: every eager call asks.
_keys_of: Callable[[Tensor], Any] | None = getattr(torch._C, "_dispatch_keys", None)
_keys_of_thread: Callable[[], Any] | None = getattr(torch._C, "_dispatch_tls_local_include_set", None)
_autocast_available: Callable[[str], bool] = getattr(
    torch._C, "_is_autocast_available", torch.amp.is_autocast_available
)
_engine: Any = getattr(torch.autograd.Variable, "_execution_engine", None)

try:
    from torch._functorch import autograd_function

    vmapped: Any = autograd_function.vmapify_autograd_function  # type: ignore[attr-defined,unused-ignore]
    # True if vmap leaves cotangents that are None as they are. The function came with the repair, in torch 2.7 or 2.8.
    maps_missing_cotangents = hasattr(autograd_function, "unpack_outputs")
    # True if torch.compile takes autograd functions inside torch.func.grad: later than 2.10, since they have a context.
    compiles_gradients = any(
        "setup_context" in getattr(constant, "co_names", ())
        for constant in autograd_function.AutogradFunctionApply.__call__.__code__.co_consts
    )
except (ImportError, AttributeError):
    vmapped, maps_missing_cotangents, compiles_gradients = None, True, True


def intercepted(*tensors: Tensor, anywhere: bool = False) -> bool:
    """True if anything may intercept an operator call on these tensors.

    Torch dispatches calls by dispatch keys. Everything that records or changes calls has its own key: torch.jit.trace,
    modes and subclasses with ``__torch_dispatch__``, make_fx, export, the transforms of torch.func, functionalization,
    batched tensors. So do tensors whose memory does not hold their values: negative and conjugate views, zero tensors,
    meta and fake tensors. Any key that an ordinary CPU tensor does not have therefore counts as interception, including
    keys that future versions may add. Other devices count as well, except for common accelerators with ``anywhere``.

    Example:
        >>> x = torch.ones(2, 2)
        >>> intercepted(x), intercepted(x.to("meta")), intercepted((1j * x).conj().imag)
        (False, True, True)
    """
    if _keys_of is None or _keys_of_thread is None:
        return True
    seen: int = _keys_of_thread().raw_repr()
    for x in tensors:
        seen |= _keys_of(x).raw_repr()
    return (seen & _extraordinary_keys(anywhere)) != 0 or in_function_mode()


def in_function_mode() -> bool:
    """True inside a ``TorchFunctionMode``, or if torch cannot tell."""
    try:
        return torch._C._len_torch_function_stack() > 0
    except AttributeError:
        return True


@cache
def _extraordinary_keys(anywhere: bool = False) -> int:
    """All keys but the ordinary ones, as bits; all of them if torch has no such names."""
    bits = 0
    try:
        for name in (*_ORDINARY, *(_ON_ACCELERATORS if anywhere else ())):
            bits |= torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)).raw_repr()
    except AttributeError:
        return -1
    return ~bits


def in_dispatch_mode() -> bool:
    """True inside a ``TorchDispatchMode``, such as make_fx's; False if torch cannot tell."""
    try:
        return torch._C._len_torch_dispatch_stack() > 0
    except AttributeError:
        return False


@constant_in_a_graph
def in_transform() -> bool:
    """True inside a transform of torch.func (grad, vmap, jvp, functionalize), or if torch cannot tell."""
    try:
        return torch._C._functorch.peek_interpreter_stack() is not None
    except AttributeError:
        return True


def nested(kind: str) -> int:
    """Return the number of active torch.func transforms of a kind (``Jvp``, ``Vmap``); 1 if torch cannot tell."""
    kinds = _transforms()
    return 1 if kinds is None else kinds.count(kind)


def reverse_inside_forward() -> bool:
    """True if a reverse mode of torch.func runs inside a forward mode; False if torch cannot tell."""
    if not in_forward_mode():
        return False
    kinds = _transforms() or []
    return "Grad" in (kinds[kinds.index("Jvp") :] if "Jvp" in kinds else kinds)


@constant_in_a_graph
def beyond_gradients() -> bool:
    """True in a forward mode of torch.func, or in two reverse modes, one in the other; False if torch cannot tell.

    In older torch it is True in every transform. It is evaluated while Dynamo traces, which guards the transforms.
    """
    kinds = _transforms() or []
    return "Jvp" in kinds or kinds.count("Grad") > 1 or bool(kinds and not compiles_gradients)


@constant_in_a_graph
def leave_graph(why: str) -> None:
    """Let torch.compile break the graph here, or raise an error with the reason if it may not (``fullgraph=True``).

    It returns if torch has no such name; the caller then raises an error, whose message Dynamo before 2.10 hides.
    """
    try:
        from torch._dynamo.exc import Unsupported
    except ImportError:
        return
    raise Unsupported(why)


@constant_in_a_graph
def is_exporting() -> bool:
    """True while torch.export exports; False if torch cannot tell.

    ``torch.compiler.is_exporting`` is new in torch 2.7, and Dynamo before 2.13 takes it for True whatever it compiles.
    Torch 2.6 has a flag of another name, for the second half of an export; the first one is in Dynamo.
    """
    dynamo: Any = sys.modules.get("torch._dynamo.symbolic_convert")
    try:
        flag = getattr(torch.compiler, "_is_exporting_flag", torch.compiler._is_compiling_flag)
        return bool(flag or dynamo.InstructionTranslator.current_tx().export)
    except AttributeError:  # Dynamo is not tracing
        return False


@constant_in_a_graph
def is_autocast_available(kind: str) -> bool:
    """The function of ``torch.amp``, which Dynamo of torch 2.6 cannot trace."""
    return _autocast_available(kind)


def _transforms() -> list[str] | None:
    """Return the names of the active transforms of torch.func, the outermost first; None if torch cannot tell."""
    try:
        from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

        return [interpreter.key().name for interpreter in retrieve_all_functorch_interpreters()]
    except (ImportError, AttributeError):
        return None


def is_fake(x: Tensor) -> bool:
    """True for tensors of ``torch._subclasses.FakeTensorMode``, which have no values; False if torch cannot tell."""
    kind = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", None)
    return kind is not None and isinstance(x, kind)


def is_batched(x: Tensor) -> bool:
    """True if ``x`` is a tensor that ``torch.func.vmap`` maps over; False if torch cannot tell."""
    try:
        return torch._C._functorch.is_batchedtensor(x)
    except AttributeError:
        return False


def is_batched_gradient(x: Tensor) -> bool:
    """True if ``x`` is a batch of cotangents from ``torch.autograd.grad(is_grads_batched=True)``, an older vmap."""
    try:
        return torch._C._functorch.is_legacy_batchedtensor(x)
    except AttributeError:
        return False


def hides_layout(x: Tensor) -> bool:
    """True if ``x`` is a sparse tensor that a transform of torch.func takes for a dense one, as before torch 2.10."""
    layout = x.layout
    try:
        while torch._C._functorch.is_functorch_wrapped_tensor(x):
            x = torch._C._functorch.get_unwrapped(x)
    except AttributeError:
        return False
    return x.layout != layout


def in_forward_mode() -> bool:
    """True inside ``torch.autograd.forward_ad.dual_level``, or if torch cannot tell."""
    return getattr(forward_ad, "_current_level", 0) >= 0


def in_backward_pass() -> bool:
    """True while the autograd engine runs; False if torch cannot tell."""
    try:
        return torch._C._current_graph_task_id() != -1
    except AttributeError:
        return False


def gradient_of_sum(values: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of the sum of ``values`` in ``x``, without a graph.

    It calls the engine as ``torch.autograd.grad`` does, whose checks in Python take longer than a small gradient.
    """
    ones = torch.ones_like(values)
    if _engine is None:
        return torch.autograd.grad(values, x, ones)[0]
    result: Tensor = _engine.run_backward((values,), (ones,), False, False, (x,), False, accumulate_grad=False)[0]
    return result


def remove_function_mode(mode: object) -> None:
    """Remove the innermost entry of ``mode`` from the ``TorchFunctionMode`` stack of this thread, if there is one.

    Modes that were entered later stay active.
    """
    above = []
    try:
        while torch._C._len_torch_function_stack() > 0:
            top = torch._C._pop_torch_function_stack()
            if top is mode:
                break
            above.append(top)
    finally:
        for other in reversed(above):
            torch._C._push_on_torch_function_stack(other)


def conjugates_applied() -> AbstractContextManager[object]:
    """Return a context in which conjugate and negative views have their values, for the inside of an operator.

    A compiled graph runs under a ``TorchDispatchMode``. In an operator that is called there, torch computes with the
    memory of such views as if it held their values (pytorch issue 198118; seen in torch 2.13).
    """
    try:
        excluded = torch._C._dispatch_tls_local_exclude_set()
        if not excluded.has(torch._C.DispatchKey.Conjugate):
            return nullcontext()
        for name in ("Conjugate", "Negative", "ZeroTensor"):
            excluded = excluded.remove(getattr(torch._C.DispatchKey, name))
        return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded)
    except AttributeError:
        return nullcontext()


def unintercepted(function: Callable[P, R]) -> Callable[P, R]:
    """Hide the calls of torch inside ``function`` from ``__torch_function__``, including modes. A decorator.

    The tensors it returns in a tuple have the type of its first argument, as the results of torch's functions have.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch._C.DisableTorchFunction():
            results = function(*args, **kwargs)
        kind: Any = type(args[0])
        if kind is Tensor or kind.__torch_function__ is torch._C._disabled_torch_function_impl:
            return results
        plain = [isinstance(x, Tensor) and not isinstance(x, kind) for x in cast(Any, results)]
        return cast(R, tuple(x.as_subclass(kind) if p else x for x, p in zip(cast(Any, results), plain, strict=True)))

    return call


def insert_function_mode(mode: object) -> None:
    """Put ``mode`` below all modes on the ``TorchFunctionMode`` stack of this thread, so that contexts come before it.

    Only the device of ``torch.set_default_device``, which torch expects at the bottom, stays below it. Torch puts the
    device of ``with torch.device(...)`` on top instead, and removes whatever is on top at the end.
    """
    above = []
    try:
        while torch._C._len_torch_function_stack() > 0:
            above.append(torch._C._pop_torch_function_stack())
        if above and type(above[-1]).__name__ == "DeviceContext" and hasattr(above[-1], "old_device"):
            torch._C._push_on_torch_function_stack(above.pop())
        torch._C._push_on_torch_function_stack(mode)
    finally:
        for other in reversed(above):
            torch._C._push_on_torch_function_stack(other)


def script_as(function: object, original: object) -> None:
    """Let TorchScript compile a call of ``function`` as one of torch's function ``original``, if it knows that."""
    try:
        from torch.jit._builtins import _find_builtin, _register_builtin

        name = _find_builtin(original)
    except (ImportError, AttributeError):
        return
    if name is not None:
        _register_builtin(function, name)
