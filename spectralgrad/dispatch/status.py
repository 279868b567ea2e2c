"""The checks of a call on an accelerator, whose outcomes the host reads together, once, when the call is complete.

To read a number, the host waits for all work that was queued before, and nothing is queued meanwhile. So a call on an
accelerator runs optimistically: what decides between the ordinary case and another one is recorded, and the ordinary
case is computed. At the end one number is read. If anything was recorded, the call runs again, and each check reads
what it needs: it raises its error, or the fallbacks decompose the matrices concerned.

In :class:`unchecked` code nothing is read: the matrices concerned are NaN, and :func:`check` reports them later. On a
CPU all values are in the host's memory, and checks read them at once.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ContextDecorator
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..errors import SpectralError, batch_positions, listed
from .torch_internals import in_dispatch_mode, in_transform, is_fake

R = TypeVar("R")


class _Run:
    """One run of a call: optimistic, or careful if ``conditions`` is None."""

    def __init__(self, operation: str, conditions: list[Tensor] | None) -> None:
        self.operation, self.conditions = operation, conditions


class _Thread(threading.local):
    run: _Run | None = None


_here = _Thread()
_contexts: list[object] = [] if os.environ.get("SPECTRALGRAD_UNCHECKED", "0") in ("", "0") else ["environment"]
_on_entering: list[Callable[[], None]] = []  # called when code becomes unchecked
_failed: dict[tuple[str, torch.Size, torch.device], Tensor] = {}  # since the last check, one flag for each matrix
_lock = threading.Lock()


def checking() -> bool:
    """True unless some thread is in :class:`unchecked` code."""
    return not _contexts


def optimistic(x: Tensor) -> bool:
    """True in an optimistic run, for tensors of an accelerator."""
    run = _here.run
    return run is not None and run.conditions is not None and accelerated(x)


def observed(x: Tensor) -> bool:
    """True if a call on an accelerator is running, so that values of ``x`` may decide something."""
    return not torch.compiler.is_compiling() and _here.run is not None and accelerated(x) and not in_transform()


def assumed(x: Tensor) -> bool:
    """True in an optimistic run whose outcome is read: it may compute the ordinary case alone.

    It has to record where that does not hold; those matrices would be NaN in unchecked code, which computes all cases.
    """
    return observed(x) and optimistic(x) and checking()


def accelerated(x: object) -> bool:
    """True for a tensor with values on a device that is not the CPU."""
    return isinstance(x, Tensor) and not x.is_cpu and not x.is_meta and not is_fake(x)


def suspected(condition: Tensor) -> bool:
    """True if the condition holds somewhere. An optimistic run records it and continues, without looking, as if not.

    Args:
        condition: one boolean for each matrix of the batch (*,), or a single one for the whole batch.
    """
    run = _here.run
    if run is None or run.conditions is None or not accelerated(condition):
        return bool(condition.any())
    run.conditions.append(condition)
    return False


def positions(condition: Tensor) -> list[tuple[int, ...]]:
    """Return the batch positions at which the condition is :func:`suspected`."""
    if optimistic(condition):
        suspected(condition)
        return []
    return batch_positions(condition)


def run(
    function: Callable[..., R], args: tuple[Any, ...], kwargs: Mapping[str, Any], operation: str, whole: bool = True
) -> R:
    """Call a function whose checks are made together: optimistically, and again if something was suspected.

    A call inside another one belongs to it. In unchecked code each puts NaN into its own results, for it knows its
    batch: an operator from the conditions, other calls (``whole``) from their first argument, matrices (*, m, n).
    """
    outer = _here.run
    if outer is not None and (outer.conditions is None or checking()):
        return function(*args, **kwargs)
    if not any(map(accelerated, (*args, *kwargs.values()))) or _recorded():
        return function(*args, **kwargs)
    conditions: list[Tensor] = []
    operation = operation if outer is None else outer.operation
    try:
        _here.run = _Run(operation, conditions)
        result = function(*args, **kwargs)
    except Exception:  # perhaps because of values that are nonsense; the careful run says what is wrong
        if not (checking() and _read(conditions)):
            raise
    finally:
        _here.run = outer
    if not conditions:
        return result
    if not checking():
        conditions = _merged(conditions)
        if outer is None:
            _note(conditions, operation)
        elif outer.conditions is not None:
            outer.conditions += conditions
        batch = next(x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)).shape[:-2] if whole else None
        return _spoiled(result, conditions, batch)
    if not _read(conditions):
        return result
    try:
        _here.run = _Run(operation, None)
        return function(*args, **kwargs)
    finally:
        _here.run = outer


def _recorded() -> bool:
    """True if what is done with tensors is recorded: the result must not depend on a number that is read."""
    return torch.jit.is_tracing() or in_dispatch_mode()  # type: ignore[attr-defined, no-untyped-call]


def _read(conditions: list[Tensor]) -> bool:
    """True if one of the conditions holds. This is what the host waits for."""
    return bool(conditions) and bool(torch.cat([c.flatten() for c in conditions]).any())


def _merged(conditions: list[Tensor]) -> list[Tensor]:
    """Return one condition of each shape."""
    by_shape: dict[torch.Size, Tensor] = {}
    for condition in conditions:
        known = by_shape.get(condition.shape)
        by_shape[condition.shape] = condition if known is None else known | condition
    return list(by_shape.values())


def _note(conditions: list[Tensor], operation: str) -> None:
    """Keep for :func:`check` where the conditions hold."""
    for condition in conditions:
        key = operation, condition.shape, condition.device
        with _lock, torch.inference_mode(False):
            if key not in _failed:  # a buffer that stays, so that a CUDA graph can write to it
                _failed[key] = torch.zeros(condition.shape, dtype=torch.bool, device=condition.device)
            _failed[key].logical_or_(condition)


def _spoiled(result: Any, conditions: list[Tensor], batch: torch.Size | None) -> Any:
    """Return a result that is NaN, and has the gradient NaN, where a condition holds.

    Conditions of another shape than ``batch``, if it is not None, count for all of the result.
    """
    if isinstance(result, tuple):
        parts = [_spoiled(x, conditions, batch) for x in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if not isinstance(result, Tensor):
        return result
    for condition in conditions:
        shape = condition.shape
        fits = batch in (None, shape) and result.shape[: len(shape)] == shape
        bad = condition if fits else condition.any()
        bad = bad.reshape((*bad.shape, *[1] * (result.dim() - bad.dim())))
        if result.dtype == torch.bool:
            result = result & ~bad
        elif result.dtype.is_floating_point or result.dtype.is_complex:
            result = result * torch.where(bad, torch.nan, 1.0).to(result.dtype.to_real())
    return result


class unchecked(ContextDecorator):  # noqa: N801
    """Compute on accelerators without reading any value. A context manager and a decorator.

    The checks are made, but their outcome stays on the device: matrices that are not finite, not definite, not
    symmetric, or on which the solver failed, come out as NaN instead of an error or a second attempt, and so do their
    gradients. :func:`check` reports them afterwards. The host then never waits for the device, and a CUDA graph can
    record the calls, including those that ``torch.compile(mode="reduce-overhead")`` makes. Calls on a CPU are not
    changed. The drivers of ``torch.linalg`` read their own status on CUDA, which cannot be changed from here.

    It applies to all threads, because backward passes run in threads of their own. With the environment variable
    ``SPECTRALGRAD_UNCHECKED=1`` a whole process is unchecked.

    Example:
        >>> import spectralgrad as sg
        >>> with sg.solvers.unchecked():
        ...     root = sg.matrix_sqrt(4 * torch.eye(2))
        >>> sg.solvers.check()
        >>> root.diag().round()
        tensor([2., 2.])
    """

    def __enter__(self) -> unchecked:
        for prepare in _on_entering:
            prepare()
        _contexts.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _contexts.remove(self)


def check() -> None:
    """Raise an error if a call in :class:`unchecked` code has failed since the last check.

    It waits for the accelerators, so call it now and then, such as once in an epoch.

    Raises:
        SpectralError: the message names the functions and the batch positions.

    Example:
        >>> import spectralgrad as sg
        >>> sg.solvers.check()  # nothing has failed
    """
    found: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    with _lock:
        for (operation, _, _), flags in _failed.items():
            found[operation] += batch_positions(flags.cpu())
            flags.zero_()
    where = "; ".join(f"{name} at {listed(sorted({*at}))}" for name, at in found.items() if at)
    if where:
        raise SpectralError(
            f"unchecked calls failed since the last check, and returned NaN: {where}. Without "
            "spectralgrad.solvers.unchecked() the same calls raise errors that say what is wrong, or use a fallback."
        )


def on_entering(prepare: Callable[[], None]) -> None:
    """Call a function before code becomes unchecked; at once, if it is."""
    _on_entering.append(prepare)
    if not checking():
        prepare()
