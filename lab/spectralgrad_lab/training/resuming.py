"""Find out what a folder contains: nothing, a run to resume, or a finished run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spectralgrad.errors import SpectralError

from . import checkpoints
from .config import FIELDS, Config, ConfigError
from .method_names import HINT, RecordedMethod
from .records import Result
from .run_files import RESULT

# Fields that may change when a run is resumed: results of the remaining epochs do not depend on them.
CHANGEABLE_FIELDS = {
    "epochs", "data", "workers", "device", "threads", "monitor_every", "checkpoint_minutes", "patience", "tensorboard",
    "record", "time_layers",
}  # fmt: skip


class RunExistsError(SpectralError, FileExistsError):
    """The folder already contains a run."""


@dataclass(frozen=True)
class EarlierRun:
    """The run in a folder: ``result`` if nothing is left to do, ``state`` if it can be resumed."""

    result: Result | None = None
    state: dict[str, Any] | None = None


def earlier_run(config: Config, folder: Path | None, resume: bool) -> EarlierRun:
    """Look for an earlier run in a folder.

    Raises:
        RunExistsError: the folder contains a run and ``resume`` is false.
        ConfigError: the run does not have the configuration ``config``.

    Example:
        >>> earlier_run(Config(), None, resume=True)
        EarlierRun(result=None, state=None)
    """
    if folder is None:
        return EarlierRun()
    result, state = read_result(folder), checkpoints.load(folder)
    if result is None and state is None:
        return EarlierRun()
    known = result if result is not None else _result_in(folder, state)
    if not resume:
        state_of = f"{known.status}, {len(known.epochs)} of {known.config.epochs} epochs"
        differ = _differences(known.config, config)
        other = f"another one ({differ}): pass another --out"
        advice = other if differ else "pass --resume to continue, or another --out"
        raise RunExistsError(f"{folder} already contains a run ({state_of}); {advice}")
    differ = _differences(known.config, config)
    if differ:
        raise ConfigError(f"{folder} contains another run: {differ}. Pass another --out, or omit these flags")
    if len(known.epochs) > config.epochs:
        raise ConfigError(
            f"{folder} contains a longer run of {len(known.epochs)} epochs; expected at least as many, or another "
            f"--out, got {config.epochs}"
        )
    if known.status == "failed" or (known.status == "done" and len(known.epochs) >= config.epochs):
        return EarlierRun(result=known)
    return EarlierRun(state=state)


def read_result(folder: Path) -> Result | None:
    """Read the result in a folder; None if there is none.

    Raises:
        CheckpointError: the file cannot be read.
    """
    path = folder / RESULT
    if not path.exists():
        return None
    try:
        return Result.from_json(path.read_bytes())
    except (ValueError, OSError) as problem:
        raise checkpoints.CheckpointError(f"{path}: not a result of spectralgrad: {problem}") from None


def _result_in(folder: Path, state: Any) -> Result:
    """The result stored in a checkpoint."""
    try:
        return Result.from_dict(state.get("result"))
    except ValueError as problem:
        raise checkpoints.damaged(folder, problem) from None


def _differences(old: Config, new: Config) -> str:
    """A description of the fields that differ; empty if none does."""
    fixed = [n for n in FIELDS if n not in CHANGEABLE_FIELDS or (n == "data" and old.depends_on_folder)]
    differ = [n for n in fixed if old.text(n) != new.text(n)]
    hint = [HINT] if any(isinstance(getattr(old, name), RecordedMethod) for name in differ) else []
    return "; ".join([*(f"{name} was {old.text(name)!r}, is {new.text(name)!r}" for name in differ), *hint])
