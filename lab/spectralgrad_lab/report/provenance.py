"""Where the results come from: commands, machine, versions and settings."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import untrusted_json
from ..comparison.results import shared_settings
from ..training.config.run_config import FIELDS
from ..training.storage.records import Result

SESSION = "session.json"


def session(folder: Path) -> dict[str, Any]:
    """What a comparison recorded about itself: ``commands`` (oldest first), ``running``, ``note`` and ``machine``.

    Example:
        >>> session(Path("nowhere"))
        {'running': '', 'note': '', 'machine': None, 'commands': []}
    """
    path = folder / SESSION
    try:
        known = _SESSION(untrusted_json.parse(path.read_bytes()), "session") if path.exists() else {}
    except (OSError, ValueError) as problem:
        warnings.warn(f"{path} is damaged and ignored: {str(problem)[:200]}", stacklevel=2)
        known = {}
    commands = known.get("commands", (known["command"],) if "command" in known else ())
    return {"running": "", "note": "", "machine": None, **known, "commands": list(commands)}


_MACHINE = untrusted_json.record(
    {
        "cpu": untrusted_json.text,
        "cores": untrusted_json.optional(untrusted_json.integer()),
        "instruction set": untrusted_json.text,
        "date": untrusted_json.text,
    },
    {"kernel": untrusted_json.optional(untrusted_json.text), "load": untrusted_json.optional(untrusted_json.number(0))},
)
_SESSION = untrusted_json.record(
    {},
    {
        "command": untrusted_json.multiline_text,
        "commands": untrusted_json.list_of(untrusted_json.multiline_text),
        "running": untrusted_json.text,
        "note": untrusted_json.multiline_text,
        "machine": untrusted_json.optional(_MACHINE),
    },
)


def load_warning(machine: dict[str, Any] | None) -> str:
    """A warning if the load average was above the number of cores; empty otherwise, or if unknown.

    Example:
        >>> load_warning({"load": 4.71, "cores": 2})
        'The load average was 4.71 on 2 cores: other programs were running, so the times cannot be compared.'
        >>> load_warning({"load": 0.5, "cores": 2})
        ''
    """
    load, cores = (machine or {}).get("load"), (machine or {}).get("cores")
    if load is None or cores is None or load <= cores:
        return ""
    return (
        f"The load average was {load:g} on {cores} cores: other programs were running, so the times cannot be compared."
    )


def versions(results: Sequence[Result]) -> dict[str, str]:
    """The software versions of all runs; several versions of one package are listed."""
    found = [result.versions or {} for result in results]
    names = dict.fromkeys(name for versions in found for name in versions)
    return {name: ", ".join(dict.fromkeys(versions.get(name, "?") for versions in found)) for name in names}


def settings(results: Sequence[Result]) -> dict[str, str]:
    """The settings that all runs share, as text.

    Example:
        >>> from spectralgrad_lab import Config
        >>> found = settings([Result(Config(milestones=(2, 4)), "done")])
        >>> [found[name] for name in ("milestones", "train size", "eps", "clip", "hybrid", "nog")]
        ['2, 4', 'all', "the layer's own", 'off', '–', 'no']
    """
    return {name.replace("_", " "): _said(name, value) for name, value in shared_settings(results).items()}


def _said(name: str, value: Any) -> str:
    """The text for a value; for None, the default that the help text of the field gives."""
    if value is None:
        meaning = re.search(r"\(default: (.+?)\)", FIELDS[name].metadata["help"])
        return meaning[1] if meaning else "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "–"
    return str(value)
