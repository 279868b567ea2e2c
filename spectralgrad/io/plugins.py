"""Entry points of installed packages: imported on first use; a broken one gives a warning, not an error."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import Any

_tried: set[tuple[str, str]] = set()
_unreadable: set[str] = set()


def names(group: str) -> list[str]:
    """Return the names of the entry points in a group without importing anything.

    Example:
        >>> names("spectralgrad.no-such-group")
        []
    """
    return sorted({point.name for point in _points(group)})


def load(group: str, name: str) -> Any:
    """Import and return the object of an entry point; None if there is none or if it is broken.

    A broken entry point gives one warning and is not tried again. If several packages provide one, a warning names
    them, and the first in alphabetical order is used.
    """
    found = sorted((_package(point.dist), point) for point in _points(group) if point.name == name)
    if not found or (group, name) in _tried:
        return None
    if len(found) > 1:
        who = ", ".join(package for package, _ in found)
        said = f"entry point {name!r} of {group} is provided by several packages, {who}; {found[0][0]} is used"
        warnings.warn(said, stacklevel=3)
    try:
        return found[0][1].load()
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # importing another package's module may raise anything, SystemExit as well
        refuse(group, name, f"{type(problem).__name__}: {problem}")
        return None


def refuse(group: str, name: str, why: str) -> None:
    """Warn that an entry point cannot be used, and do not load it again."""
    _tried.add((group, name))
    warnings.warn(f"entry point {name!r} of {group} is ignored: {why}", stacklevel=4)


def _points(group: str) -> Sequence[EntryPoint]:
    """The entry points of a group; a package whose list cannot be read is left out with one warning."""
    found: dict[str, list[EntryPoint]] = {}
    for package in distributions():
        try:
            points = [point for point in package.entry_points if point.group == group]
        except Exception as problem:  # bytes that are not UTF-8, lines that are no entry points
            _leave_out(package, problem)
            continue
        if points:  # the first package of a name on sys.path hides the others
            found.setdefault(_package(package), points)
    return [point for points in found.values() for point in points]


def _leave_out(package: Distribution, problem: Exception) -> None:
    where = _place(package)
    if where not in _unreadable:
        _unreadable.add(where)
        said = f"the entry points in {where} are ignored: {type(problem).__name__}: {problem}"
        warnings.warn(said, stacklevel=4)


def _package(package: Distribution | None) -> str:
    """The name of a package; where it is, if its name cannot be read."""
    if package is None:
        return ""
    try:
        return str(package.metadata["Name"] or _place(package))
    except Exception:
        return _place(package)


def _place(package: Distribution) -> str:
    return str(getattr(package, "_path", package))
