"""Which function computes an item, which one trains it, and which one draws it."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from .value_conditions import Value

if TYPE_CHECKING:
    from .training import Training

Compute = Callable[[], Mapping[str, Value]]
Train = Callable[["Training"], Mapping[str, Value]]
Draw = Callable[[Mapping[str, Any]], Any]
F = TypeVar("F", bound=Callable[..., Any])

_COMPUTE: dict[str, Compute] = {}
_TRAIN: dict[str, Train] = {}
_DRAW: dict[str, Draw] = {}


def computes(*keys: str) -> Callable[[F], F]:
    """Declare that a function computes the values of items, given by their keys such as ``"tpami/R22"``.

    The function takes nothing and returns a dictionary of numbers, truth values, words or lists of these: at least the
    quantities named in the items file, and whatever the item's picture or its reason needs.
    """
    return _declare(_COMPUTE, keys)


def trains(*keys: str) -> Callable[[F], F]:
    """Declare that a function carries out the training runs of items and evaluates them.

    It takes a :class:`~spectralgrad_lab.papers.training.Training` and returns what a function of :func:`computes` does.
    A value called ``NAME_published`` is shown beside the quantity ``NAME``.
    """
    return _declare(_TRAIN, keys)


def draws(*keys: str) -> Callable[[F], F]:
    """Declare that a function draws items: it takes the computed values and returns a matplotlib figure."""
    return _declare(_DRAW, keys)


def compute_of(key: str) -> Compute | None:
    """The function that computes an item, or None if there is none."""
    _import_all()
    return _COMPUTE.get(key)


def train_of(key: str) -> Train | None:
    """The function that carries out the training runs of an item, or None if there is none."""
    _import_all()
    return _TRAIN.get(key)


def draw_of(key: str) -> Draw | None:
    """The function that draws an item, or None if it has no picture."""
    _import_all()
    return _DRAW.get(key)


def declared() -> set[str]:
    """The keys of all items for which there is a function."""
    _import_all()
    return {*_COMPUTE, *_TRAIN, *_DRAW}


def _declare(table: dict[str, Any], keys: tuple[str, ...]) -> Callable[[F], F]:
    def declare(function: F) -> F:
        for key in keys:
            if key in table:
                raise ValueError(f"two functions are declared for {key}: {table[key].__name__}, {function.__name__}")
            table[key] = function
        return function

    return declare


@cache
def _import_all() -> None:
    """Import every module in the folders of the papers, so that their functions are declared."""
    package = __name__.rpartition(".")[0]
    folder = import_module(package)
    for paper in pkgutil.iter_modules(folder.__path__):
        if paper.ispkg:
            prefix = f"{package}.{paper.name}."
            for module in pkgutil.walk_packages(import_module(prefix[:-1]).__path__, prefix):
                import_module(module.name)
