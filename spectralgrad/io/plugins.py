"""Entry points of installed packages: known by name at once, imported when asked for, and never fatal."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

_tried: set[tuple[str, str]] = set()


def names(group: str) -> list[str]:
    """The names of the entry points in a group; nothing is imported.

    Example:
        >>> names("spectralgrad.no-such-group")
        []
    """
    return sorted({point.name for point in _points(group)})


def load(group: str, name: str) -> Any:
    """What an entry point refers to, imported at its first call; None if there is none, or if it is broken.

    A broken one gives one warning.
    """
    found = [point for point in _points(group) if point.name == name]
    if not found or (group, name) in _tried:
        return None
    try:
        return found[0].load()
    except Exception as problem:  # whatever a stranger's module does when it is imported
        refuse(group, name, f"{type(problem).__name__}: {problem}")
        return None


def refuse(group: str, name: str, why: str) -> None:
    """Warn that an entry point cannot be used, and do not load it again."""
    _tried.add((group, name))
    warnings.warn(f"entry point {name!r} of {group} is left out: {why}", stacklevel=4)


def _points(group: str) -> Sequence[EntryPoint]:
    return list(entry_points(group=group))
