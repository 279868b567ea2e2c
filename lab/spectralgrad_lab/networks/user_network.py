"""A user's own network, named ``module:callable``: it gets the settings that it asks for by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from ..import_by_name import named, parameters
from .config import SETTINGS, NetworkConfig
from .errors import NetworkError


def own_network(name: str, classes: int, channels: int, image_size: int, config: NetworkConfig) -> nn.Module:
    """Call the callable of ``module:callable`` with ``classes=``, and what else of this it has parameters for.

    Args:
        name: modules are also looked for in the current folder.
        classes: how many.
        channels: of the images.
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
    """The names of its parameters; ``classes`` is among them if it takes any, or tells none."""
    found = parameters(make)
    names = {name for name, p in found.items() if p.kind is not p.VAR_KEYWORD}
    return names | ({"classes"} if len(names) < len(found) else set())


def _callable(name: str) -> Callable[..., Any]:
    return named(name, "network", NetworkError)
