"""The switch for the whole process: every thread, and the threads and processes that are started while it is on.

Torch keeps a stack of modes for each thread, and no thread can change another thread's. So there are three ways in:

* The thread that switches it on has the mode on its stack, as in the context. Every call is intercepted there, by
  whatever name.
* Threads and processes that are started later put the mode on their stack first, see ``children.py``.
* In threads that run already, the names ``torch.linalg.eigh``, ... stand for objects that put the mode on the stack
  for the duration of the call. Not covered there are names that were imported before, methods of tensors such as
  ``A.svd()``, and ``torch.norm``.

Once it is off, a mode that is still on the stack of another thread passes all calls on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import update_wrapper
from inspect import isbuiltin
from pkgutil import resolve_name
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..dispatch.torch_internals import insert_function_mode, remove_function_mode, script_as
from ..rules import Method
from .children import Starts
from .replacements import FUNCTIONS
from .serving import serve

_enabled: list[Any] = []  # the objects that are switched on; the last one applies
_lock = threading.RLock()


class _Mode(TorchFunctionMode):
    """The one mode of the process, below all contexts on every stack."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        method = current_method()
        if method is None:
            return func(*args, **(kwargs or {}))
        if func in _BACKWARD:
            with _uncovered():
                return func(*args, **(kwargs or {}))
        return serve(self, method, func, types, args, kwargs)


class _Thread(threading.local):
    """What this thread knows of its stack.

    Attributes:
        covered: the mode is on it, also while its handler runs and torch has taken it off.
        switched: it was put there by :func:`enable`.
    """

    covered = False
    switched = False


_mode, _here = _Mode(), _Thread()
_BACKWARD = (torch.Tensor.backward, torch.autograd.grad)  # a checkpoint calls the user's function again in them


def current_method() -> Method | None:
    """Return the method of the object that was switched on last; None if there is none."""
    last = _enabled[-1:]
    return last[0].method if last else None


def enable(rescue: Any) -> None:
    """Switch an ``override_linalg`` on in the whole process; it comes before those that are on already."""
    with _lock:
        _forget(rescue)
        _enabled.append(rescue)
        for place in _PLACES:
            place.occupy()
        _STARTS.install()
    if not _here.covered:
        _here.covered = _here.switched = True
        insert_function_mode(_mode)


def disable(rescue: Any) -> None:
    """Switch it off again, from any thread."""
    with _lock:
        _forget(rescue)
        if not _enabled:
            _STARTS.remove()
            for place in _PLACES:
                place.vacate()
    if _here.switched and not _enabled:
        _here.covered = _here.switched = False
        remove_function_mode(_mode)


def _forget(rescue: Any) -> None:
    _enabled[:] = [other for other in _enabled if other is not rescue]


@contextmanager
def covered() -> Iterator[None]:
    """Have the mode on the stack of this thread, unless it is."""
    if _here.covered:
        yield
        return
    _here.covered = True
    insert_function_mode(_mode)
    try:
        yield
    finally:
        remove_function_mode(_mode)
        _here.covered = False


@contextmanager
def _uncovered() -> Iterator[None]:
    """Let functions be replaced by name while torch has taken the mode off the stack to call its handler."""
    _here.covered = False
    try:
        yield
    finally:
        _here.covered = True


class _Function:
    """Stands for a function of torch while the switch is on. It equals that function, also as a key of a dictionary."""

    def __init__(self, name: str, original: Any) -> None:
        self.name, self.original = name, original
        update_wrapper(self, original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _here.covered or not _enabled:
            return self.original(*args, **kwargs)
        if torch.compiler.is_compiling():
            return _mode.__torch_function__(self.original, (), args, kwargs)
        with covered():
            return self.original(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.original

    def __hash__(self) -> int:
        return hash(self.original)

    def __repr__(self) -> str:
        return repr(self.original)

    def __reduce__(self) -> Any:
        return resolve_name, (self.name,)


class _Place:
    """An attribute of a module of torch, such as ``torch.linalg.eigh``."""

    def __init__(self, name: str, original: Any) -> None:
        module, self.attribute = name.split(":")
        self.owner, self.original, self.function = resolve_name(module), original, _Function(name, original)

    def occupy(self) -> None:
        """Put the function of the switch there."""
        if getattr(self.owner, self.attribute) is self.original:
            script_as(self.function, self.original)
            setattr(self.owner, self.attribute, self.function)

    def vacate(self) -> None:
        """Restore torch's, unless somebody has put something else there since."""
        if getattr(self.owner, self.attribute) is self.function:
            setattr(self.owner, self.attribute, self.original)


def _after_fork() -> None:
    """Another thread of the parent may have held the lock; it does not exist in the child."""
    global _lock
    _lock = threading.RLock()


# Functions of torch that are written in Python stay where they are, because TorchScript compiles their source; methods
# of tensors as well, because Dynamo handles them by name.
_PLACES = [_Place(name, original) for name, original in FUNCTIONS.items() if isbuiltin(original)]
_STARTS = Starts(covered, lambda: tuple(_enabled))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
