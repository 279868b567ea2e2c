"""How the results were made: commands, machine, versions and settings, as the page lists them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import untrusted_json
from ..comparison.results import common
from ..training.config import FIELDS
from ..training.records import Result

SESSION = "session.json"


def session(folder: Path) -> dict[str, Any]:
    """What a comparison noted of itself: ``commands``, oldest first, ``running``, ``note`` and ``machine``.

    Example:
        >>> session(Path("nowhere"))
        {'running': '', 'note': '', 'machine': None, 'commands': []}
    """
    path = folder / SESSION
    try:
        known = _SESSION(untrusted_json.parsed(path.read_bytes()), "session") if path.exists() else {}
    except (OSError, ValueError) as problem:
        warnings.warn(f"{path} is damaged and left out: {str(problem)[:200]}", stacklevel=2)
        known = {}
    commands = known.get("commands", (known["command"],) if "command" in known else ())
    return {"running": "", "note": "", "machine": None, **known, "commands": list(commands)}


_MACHINE = untrusted_json.record(
    {
        "cpu": untrusted_json.words,
        "cores": untrusted_json.maybe(untrusted_json.whole()),
        "instruction set": untrusted_json.words,
        "date": untrusted_json.words,
    },
    {"kernel": untrusted_json.maybe(untrusted_json.words), "load": untrusted_json.maybe(untrusted_json.number(0))},
)
_SESSION = untrusted_json.record(
    {},
    {
        "command": untrusted_json.lines,
        "commands": untrusted_json.series(untrusted_json.lines),
        "running": untrusted_json.words,
        "note": untrusted_json.lines,
        "machine": untrusted_json.maybe(_MACHINE),
    },
)


def busy(machine: dict[str, Any] | None) -> str:
    """That the machine had more to do than it has cores; empty if it had not, or nobody knows.

    Example:
        >>> busy({"load": 4.71, "cores": 2})
        'The load average was 4.71 on 2 cores: other work ran beside, and the times cannot be compared.'
        >>> busy({"load": 0.5, "cores": 2})
        ''
    """
    load, cores = (machine or {}).get("load"), (machine or {}).get("cores")
    if load is None or cores is None or load <= cores:
        return ""
    return f"The load average was {load:g} on {cores} cores: other work ran beside, and the times cannot be compared."


def versions(results: Sequence[Result]) -> dict[str, str]:
    """Of all runs; several of one thing are listed."""
    found = [result.versions or {} for result in results]
    names = dict.fromkeys(name for versions in found for name in versions)
    return {name: ", ".join(dict.fromkeys(versions.get(name, "?") for versions in found)) for name in names}


def settings(results: Sequence[Result]) -> dict[str, str]:
    """What all runs share, in words.

    Example:
        >>> from spectralgrad_lab import Config
        >>> found = settings([Result(Config(milestones=(2, 4)), "done")])
        >>> [found[name] for name in ("milestones", "train size", "eps", "clip", "hybrid", "nog")]
        ['2, 4', 'all', "the layer's own", 'off', '–', 'no']
    """
    return {name.replace("_", " "): _said(name, value) for name, value in common(results).items()}


def _said(name: str, value: Any) -> str:
    """A value of a field; for None what its help text says of it."""
    if value is None:
        meaning = re.search(r"\(default: (.+?)\)", FIELDS[name].metadata["help"])
        return meaning[1] if meaning else "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "–"
    return str(value)
