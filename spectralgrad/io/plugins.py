"""Entry points of installed packages: imported on first use; a broken one gives a warning, not an error."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

_tried: set[tuple[str, str]] = set()


def names(group: str) -> list[str]:
    """Return the names of the entry points in a group without importing anything.

    Example:
        >>> names("spectralgrad.no-such-group")
        []
    """
    return sorted({point.name for point in _points(group)})


def load(group: str, name: str) -> Any:
    """Import and return the object of an entry point; None if there is none or if it is broken.

    A broken entry point gives one warning and is not tried again.
    """
    found = [point for point in _points(group) if point.name == name]
    if not found or (group, name) in _tried:
        return None
    try:
        return found[0].load()
    except Exception as problem:  # importing another package's module may raise anything
        refuse(group, name, f"{type(problem).__name__}: {problem}")
        return None


def refuse(group: str, name: str, why: str) -> None:
    """Warn that an entry point cannot be used, and do not load it again."""
    _tried.add((group, name))
    warnings.warn(f"entry point {name!r} of {group} is ignored: {why}", stacklevel=4)


def _points(group: str) -> Sequence[EntryPoint]:
    return list(entry_points(group=group))
