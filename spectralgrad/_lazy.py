"""Subpackages that are imported on first use, which keeps ``import spectralgrad`` fast."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

_LAZY = frozenset({"diagnostics", "nn", "optim", "training"})
_PACKAGE = __name__.rpartition(".")[0]


def load(name: str) -> ModuleType:
    """Import and return the subpackage ``name``; the package's ``__getattr__``."""
    if name not in _LAZY:
        raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}")
    return import_module(f"{_PACKAGE}.{name}")


def listing() -> list[str]:
    """Return all names of the package, including subpackages not yet imported; the package's ``__dir__``."""
    return sorted({*vars(sys.modules[_PACKAGE]), *_LAZY})
