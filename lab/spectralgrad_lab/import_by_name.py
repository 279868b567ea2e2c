"""Import what ``module:callable`` refers to: only names given by the caller's code or command line, never by a file."""

from __future__ import annotations

import importlib
import inspect
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

from spectralgrad.errors import SpectralError

_given: set[str] = set()  # names that code or the command line gave in this process


class NameInFile(str):
    """A text with a colon that was read from a file. It can be shown and compared; :func:`load_callable` refuses it.

    Copies, pickles and configurations derived from it keep its type; ``replaced(network=...)`` gives your own name.
    """

    __slots__ = ()


def from_file(values: Mapping[str, Any]) -> dict[str, Any]:
    """Mark the values of a file that might be names of callables. Every reader of a configuration calls this.

    Example:
        >>> found = from_file({"network": "mine:net", "epochs": 3})
        >>> found, type(found["network"]).__name__
        ({'network': 'mine:net', 'epochs': 3}, 'NameInFile')
    """
    return {name: NameInFile(v) if isinstance(v, str) and ":" in v else v for name, v in values.items()}


def require_given(name: str, what: str, error: type[SpectralError]) -> None:
    """Raise ``error`` if only a file names this callable, not the code or command line of this process.

    Example:
        >>> require_given(NameInFile("mine:net"), "network", SpectralError)
        Traceback (most recent call last):
        ...
        spectralgrad.errors.SpectralError: network 'mine:net' is named only by a file, and nothing is imported because a
        file names it; if you trust this code, pass --network mine:net (in Python: config.replaced(network='mine:net'))
    """
    if isinstance(name, NameInFile) and name not in _given:
        raise error(
            f"{what} {str(name)!r} is named only by a file, and nothing is imported because a file names it; if you "
            f"trust this code, pass --{what} {shlex.quote(name)} (in Python: config.replaced({what}={str(name)!r}))"
        )


def give(*names: str | None) -> None:
    """Accept these names in this process even where a file repeats them; for flags of a command.

    Example:
        >>> give("math:isqrt", None)
        >>> require_given(NameInFile("math:isqrt"), "network", SpectralError)
    """
    _given.update(str(name) for name in names if name is not None)


def load_callable(name: str, what: str, error: type[SpectralError]) -> Callable[..., Any]:
    """Import a callable; the current folder is searched for modules too.

    Args:
        name: ``module:callable``.
        what: what it is, for messages: a network, a dataset.
        error: raised if the module or callable does not exist, or if only a file names it.

    Example:
        >>> load_callable("torch.nn:Linear", "network", SpectralError).__name__
        'Linear'
    """
    require_given(name, what, error)
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise error(f"expected a {what} as 'module:callable', got {name!r}")
    give(name)
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


@contextmanager
def exit_is_an_error(what: str, error: type[SpectralError]) -> Iterator[None]:
    """Context in which ``exit()`` in a user's code raises ``error`` instead of ending the program with its status.

    Example:
        >>> with exit_is_an_error("dataset 'mine:images'", SpectralError):
        ...     sys.exit(0)
        Traceback (most recent call last):
        ...
        spectralgrad.errors.SpectralError: dataset 'mine:images' called exit(0)
    """
    try:
        yield
    except SystemExit as end:
        raise error(f"{what} called exit({end.code!r})") from end


def _imported(name: str, what: str, error: type[SpectralError]) -> ModuleType:
    with _current_folder(), exit_is_an_error(f"{what} module {name!r}", error):
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
