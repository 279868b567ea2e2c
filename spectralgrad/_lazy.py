"""The public names of packages: what they export, what ``dir`` lists, and what loads on first use."""

from __future__ import annotations

import sys
from importlib import import_module, reload
from types import ModuleType

_LAZY = frozenset({"diagnostics", "nn", "optim", "training"})
_PACKAGE = __name__.rpartition(".")[0]


def load(name: str) -> ModuleType:
    """Import and return the subpackage ``name``; the package's ``__getattr__``."""
    if name not in _LAZY:
        raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}")
    return import_module(f"{_PACKAGE}.{name}")


def complete() -> None:
    """Import the whole package, if so far it is only in place (see ``spectralgrad_cli.py``)."""
    package = sys.modules[_PACKAGE]
    if not hasattr(package, "__all__"):
        reload(package)


def export(package: str, *others: str) -> None:
    """Make every public name that a package's ``__init__`` imports a name that the package exports.

    Sets ``__all__`` and ``__dir__``. Each file states its public names once, in its own ``__all__``, and the packages
    above import ``*`` from it; type checkers follow such imports, but no ``__all__`` that is computed in their sight.

    Args:
        package: name of the package.
        others: further names: modules, which are left out otherwise, and what starts with an underscore.
    """
    module = sys.modules[package]
    imported = {name for name, x in vars(module).items() if name[0] != "_" and not isinstance(x, ModuleType)}
    module.__all__ = sorted({*others, *imported - {"TYPE_CHECKING"}})  # type: ignore[attr-defined]
    list_public(package)


def list_public(package: str) -> None:
    """Let ``dir`` list a package's public names, imported or not, and what Python itself defines."""

    def names() -> list[str]:
        known = vars(sys.modules[package])
        return sorted({*known["__all__"], *(name for name in known if name.startswith("__") and name.endswith("__"))})

    sys.modules[package].__dir__ = names  # type: ignore[method-assign, assignment]
