"""A user's own network, given as ``module:callable``, which receives the settings that it has parameters for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from ..import_by_name import exit_is_an_error, keyword_parameters, load_callable
from .config import SETTINGS, NetworkConfig
from .errors import NetworkError


def own_network(name: str, classes: int, channels: int, image_size: int, config: NetworkConfig) -> nn.Module:
    """Call ``module:callable`` with ``classes=`` and all other settings that it has parameters for.

    Args:
        name: ``module:callable``; the current folder is searched for modules too.
        classes: number of classes.
        channels: of the images.
        image_size: side length of the images.
        config: ``method``, ``group_size`` and the other settings of a network.

    Raises:
        NetworkError: the module or callable does not exist, or does not return a :class:`torch.nn.Module`.
    """
    make = _callable(name)
    offered = {"channels": channels, "image_size": image_size, **{s: getattr(config, s) for s in SETTINGS}}
    wanted = {word: value for word, value in offered.items() if word in _parameters(make)}
    if "classes" not in _parameters(make):
        raise NetworkError(f"network {name!r}: expected a callable with a parameter `classes`")
    with exit_is_an_error(f"network {name!r}", NetworkError):
        net = make(classes=classes, **wanted)
    if not isinstance(net, nn.Module):
        raise NetworkError(f"network {name!r}: expected it to return a torch.nn.Module, got {type(net).__name__}")
    return net


def accepts(name: str, setting: str) -> bool:
    """True if ``module:callable`` has a parameter of that name.

    Example:
        >>> accepts("torch.nn:Linear", "bias"), accepts("torch.nn:Linear", "method")
        (True, False)
    """
    return setting in _parameters(_callable(name))


def _parameters(make: Callable[..., Any]) -> set[str]:
    """The names of its parameters; ``classes`` is included if it accepts any keyword or has no signature."""
    found = keyword_parameters(make)
    names = {name for name, p in found.items() if p.kind is not p.VAR_KEYWORD}
    return names | ({"classes"} if len(names) < len(found) else set())


def _callable(name: str) -> Callable[..., Any]:
    return load_callable(name, "network", NetworkError)
