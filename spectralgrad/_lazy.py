"""Subpackages that load when they are first used, so that importing the package stays quick."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

_LAZY = frozenset({"diagnostics", "nn", "optim", "training"})


def load(name: str) -> ModuleType:
    """The subpackage of this name; serves as the package's ``__getattr__``."""
    package = __name__.rpartition(".")[0]
    if name not in _LAZY:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return import_module(f"{package}.{name}")
