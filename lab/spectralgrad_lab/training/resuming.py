"""What a folder already holds: nothing, a run to go on with, or one that has ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spectralgrad.errors import SpectralError

from . import checkpoints
from .config import FIELDS, Config, ConfigError
from .method_names import HINT, Recorded
from .records import Result
from .run_files import RESULT

# What may change between the parts of a run, since no number of the rest of it depends on it.
FREE = {
    "epochs", "data", "workers", "device", "threads", "monitor_every", "checkpoint_minutes", "patience", "tensorboard",
}  # fmt: skip


class RunExistsError(SpectralError, FileExistsError):
    """The folder holds a run already."""


@dataclass(frozen=True)
class Previous:
    """A result if there is nothing left to do, a state if there is something to go on from."""

    result: Result | None = None
    state: dict[str, Any] | None = None


def previous(config: Config, folder: Path | None, resume: bool) -> Previous:
    """What there is to go on from.

    Raises:
        RunExistsError: there is a run, and nobody said ``resume``.
        ConfigError: it is another run than ``config`` describes.

    Example:
        >>> previous(Config(), None, resume=True)
        Previous(result=None, state=None)
    """
    if folder is None:
        return Previous()
    result, state = read_result(folder), checkpoints.load(folder)
    if result is None and state is None:
        return Previous()
    known = result if result is not None else _begun(folder, state)
    if not resume:
        state_of = f"{known.status}, {len(known.epochs)} of {known.config.epochs} epochs"
        differ = _differences(known.config, config)
        advice = f"another one ({differ}): pass another --out" if differ else "pass --resume to go on, or another --out"
        raise RunExistsError(f"{folder} holds a run already ({state_of}); {advice}")
    differ = _differences(known.config, config)
    if differ:
        raise ConfigError(f"{folder} holds another run: {differ}. Pass another --out, or leave these out")
    if len(known.epochs) > config.epochs:
        raise ConfigError(
            f"{folder} holds a longer run, of {len(known.epochs)} epochs; expected at least as many, or another --out, "
            f"got {config.epochs}"
        )
    if known.status == "failed" or (known.status == "done" and len(known.epochs) >= config.epochs):
        return Previous(result=known)
    return Previous(state=state)


def read_result(folder: Path) -> Result | None:
    """The result in a folder; None if there is none.

    Raises:
        CheckpointError: there is one, but it cannot be read.
    """
    path = folder / RESULT
    if not path.exists():
        return None
    try:
        return Result.from_json(path.read_bytes())
    except (ValueError, OSError) as problem:
        raise checkpoints.CheckpointError(f"{path}: not a result of spectralgrad: {problem}") from None


def _begun(folder: Path, state: Any) -> Result:
    """The result that a checkpoint holds."""
    try:
        return Result.from_dict(state.get("result"))
    except ValueError as problem:
        raise checkpoints.damaged(folder, problem) from None


def _differences(old: Config, new: Config) -> str:
    """In words; empty if the new run is the old one."""
    fixed = [n for n in FIELDS if n not in FREE or (n == "data" and old.located)]
    differ = [n for n in fixed if old.text(n) != new.text(n)]
    hint = [HINT] if any(isinstance(getattr(old, name), Recorded) for name in differ) else []
    return "; ".join([*(f"{name} was {old.text(name)!r}, is {new.text(name)!r}" for name in differ), *hint])
