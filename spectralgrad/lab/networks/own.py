"""A user's own network, named ``module:callable``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from types import ModuleType

from torch import nn

from .errors import NetworkError


def own_network(name: str, classes: int) -> nn.Module:
    """Call ``callable(classes=classes)`` of ``module:callable``. Modules are also looked for in the current folder.

    Raises:
        NetworkError: there is no such module or callable, or what it returns is no :class:`torch.nn.Module`.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise NetworkError(f"expected a network as 'module:callable', got {name!r}")
    try:
        make = reduce(getattr, attribute.split("."), _imported(module_name))
    except AttributeError as problem:
        raise NetworkError(f"network {name!r}: {problem}") from problem
    if not callable(make):
        raise NetworkError(f"network {name!r}: expected something to call, got {type(make).__name__}")
    net = make(classes=classes)
    if not isinstance(net, nn.Module):
        raise NetworkError(f"network {name!r}: expected it to return a torch.nn.Module, got {type(net).__name__}")
    return net


def _imported(name: str) -> ModuleType:
    with _current_folder():
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as problem:
            if problem.name is None or not f"{name}.".startswith(f"{problem.name}."):
                raise  # found, and missing something itself
            raise NetworkError(f"network module {name!r} not found, neither installed nor in {Path.cwd()}") from problem


@contextmanager
def _current_folder() -> Iterator[None]:
    folder = str(Path.cwd())
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
