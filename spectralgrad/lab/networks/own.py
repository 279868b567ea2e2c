"""A user's own network, named ``module:callable``: it gets the settings that it asks for by name."""

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

from torch import nn

from .config import SETTINGS, NetworkConfig
from .errors import NetworkError


def own_network(name: str, classes: int, channels: int, image_size: int, config: NetworkConfig) -> nn.Module:
    """Call the callable of ``module:callable`` with ``classes=``, and what else of this it has parameters for.

    Args:
        name: modules are also looked for in the current folder.
        classes: how many.
        channels: of the pictures.
        image_size: their side.
        config: ``method``, ``group_size`` and the other settings of a network.

    Raises:
        NetworkError: there is no such module or callable, or what it returns is no :class:`torch.nn.Module`.
    """
    make = _callable(name)
    offered = {"channels": channels, "image_size": image_size, **{s: getattr(config, s) for s in SETTINGS}}
    wanted = {word: value for word, value in offered.items() if word in _parameters(make)}
    if "classes" not in _parameters(make):
        raise NetworkError(f"network {name!r}: expected a callable with a parameter `classes`")
    net = make(classes=classes, **wanted)
    if not isinstance(net, nn.Module):
        raise NetworkError(f"network {name!r}: expected it to return a torch.nn.Module, got {type(net).__name__}")
    return net


def asks_for(name: str, setting: str) -> bool:
    """Whether the callable of ``module:callable`` has a parameter of that name.

    Example:
        >>> asks_for("torch.nn:Linear", "bias"), asks_for("torch.nn:Linear", "method")
        (True, False)
    """
    return setting in _parameters(_callable(name))


def _parameters(make: Callable[..., Any]) -> set[str]:
    """The names of its parameters; ``classes`` is among them if it takes any."""
    try:
        found = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # a callable without a signature
        return {"classes"}
    names = {p.name for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return names | ({"classes"} if any(p.kind is p.VAR_KEYWORD for p in found) else set())


def _callable(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise NetworkError(f"expected a network as 'module:callable', got {name!r}")
    try:
        make = reduce(getattr, attribute.split("."), _imported(module_name))
    except AttributeError as problem:
        raise NetworkError(f"network {name!r}: {problem}") from problem
    if not callable(make):
        raise NetworkError(f"network {name!r}: expected something to call, got {type(make).__name__}")
    found: Callable[..., Any] = make
    return found


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
    there = folder in sys.path
    if not there:
        sys.path.append(folder)
    try:
        yield
    finally:
        if not there:
            sys.path.remove(folder)
