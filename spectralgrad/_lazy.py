"""The public names of packages: what ``dir`` lists, and subpackages that are imported on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

_LAZY = frozenset({"diagnostics", "nn", "optim", "training"})
_PACKAGE = __name__.rpartition(".")[0]


def load(name: str) -> ModuleType:
    """Import and return the subpackage ``name``; the package's ``__getattr__``."""
    if name not in _LAZY:
        raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}")
    return import_module(f"{_PACKAGE}.{name}")


def listing(package: str) -> Callable[[], list[str]]:
    """Return the ``__dir__`` of a package: its public names, imported or not, and what Python itself defines."""

    def names() -> list[str]:
        known = vars(sys.modules[package])
        return sorted({*known["__all__"], *(name for name in known if name.startswith("__") and name.endswith("__"))})

    return names
