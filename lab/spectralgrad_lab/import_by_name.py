"""Import what ``module:callable`` refers to. Only modules that the user names are imported."""

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


def load_callable(name: str, what: str, error: type[SpectralError]) -> Callable[..., Any]:
    """Import a callable; the current folder is searched for modules too.

    Args:
        name: ``module:callable``.
        what: what it is, for messages: a network, a dataset.
        error: raised if the module or callable does not exist.

    Example:
        >>> load_callable("torch.nn:Linear", "network", SpectralError).__name__
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
        raise error(f"{what} {name!r}: expected a callable, got {type(make).__name__}")
    found: Callable[..., Any] = make
    return found


def keyword_parameters(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters that can be passed by keyword; a callable without a signature accepts any."""
    try:
        found = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return {"any": inspect.Parameter("any", inspect.Parameter.VAR_KEYWORD)}
    return {name: p for name, p in found.items() if p.kind not in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)}


def is_imported(name: str) -> bool:
    """True unless the name is a ``module:callable`` whose module has not been imported yet.

    Example:
        >>> is_imported("small"), is_imported("torch.nn:Linear"), is_imported("no_such_module:net")
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
                raise  # the module exists, but one of its own imports fails
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
