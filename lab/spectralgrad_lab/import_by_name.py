"""What ``module:callable`` refers to. Only modules that the user names are imported."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

from spectralgrad.errors import SpectralError


def named(name: str, what: str, error: type[SpectralError]) -> Callable[..., Any]:
    """The callable of ``module:callable``; modules are also looked for in the current folder.

    Args:
        name: the module and the callable in it.
        what: it is for, in a word.
        error: raised if there is no such module or callable.

    Example:
        >>> named("torch.nn:Linear", "network", SpectralError).__name__
        'Linear'
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise error(f"expected a {what} as 'module:callable', got {name!r}")
    try:
        make = reduce(getattr, attribute.split("."), _imported(module_name, what, error))
    except AttributeError as problem:
        raise error(f"{what} {name!r}: {problem}") from problem
    if not callable(make):
        raise error(f"{what} {name!r}: expected something to call, got {type(make).__name__}")
    found: Callable[..., Any] = make
    return found


def parameters(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters that can be given by name; for a callable without a signature, that it takes any."""
    try:
        found = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return {"any": inspect.Parameter("any", inspect.Parameter.VAR_KEYWORD)}
    return {name: p for name, p in found.items() if p.kind not in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)}


def imported(name: str) -> bool:
    """Whether a name is no ``module:callable``, or one whose module somebody has imported already.

    Example:
        >>> imported("small"), imported("torch.nn:Linear"), imported("no_such_module:net")
        (True, True, False)
    """
    module, colon, _ = name.partition(":")
    return not colon or module in sys.modules


def _imported(name: str, what: str, error: type[SpectralError]) -> ModuleType:
    with _current_folder():
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as problem:
            if problem.name is None or not f"{name}.".startswith(f"{problem.name}."):
                raise  # found, and missing something itself
            raise error(f"{what} module {name!r} not found, neither installed nor in {Path.cwd()}") from problem


@contextmanager
def _current_folder() -> Iterator[None]:
    folder = str(Path.cwd())
    there = folder in sys.path
    if not there:
        sys.path.append(folder)
    try:
        yield
    finally:
        if not there:
            sys.path.remove(folder)
