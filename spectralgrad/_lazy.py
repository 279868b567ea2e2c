"""Subpackages that load when they are first used, so that importing the package stays quick."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

_LAZY = frozenset({"diagnostics", "nn", "optim", "training"})
_PACKAGE = __name__.rpartition(".")[0]


def load(name: str) -> ModuleType:
    """The subpackage of this name; serves as the package's ``__getattr__``."""
    if name not in _LAZY:
        raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}")
    return import_module(f"{_PACKAGE}.{name}")


def listing() -> list[str]:
    """Every name of the package, loaded or not; serves as its ``__dir__``."""
    return sorted({*vars(sys.modules[_PACKAGE]), *_LAZY})
