"""Find out what a folder contains: nothing, a run to resume, or a finished run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from spectralgrad.errors import SpectralError

from ... import untrusted_json
from ..config.run_config import Config, ConfigError
from . import checkpoints
from .records import Result
from .run_files import RESULT

CHANGEABLE_FIELDS = Config.changeable
R = TypeVar("R")


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
    position = f"{known.status}, {len(known.epochs)} of {known.config.epochs} epochs"
    check_same_run(folder, position, known.config.differences(config), resume)
    if len(known.epochs) > config.epochs:
        raise ConfigError(
            f"{folder} contains a longer run of {len(known.epochs)} epochs; expected at least as many, or another "
            f"--out, got {config.epochs}"
        )
    if known.status == "failed" or (known.status == "done" and len(known.epochs) >= config.epochs):
        return EarlierRun(result=known)
    return EarlierRun(state=state)


def check_same_run(folder: Path, position: str, differences: str, resume: bool) -> None:
    """Refuse to overwrite the run in a folder, or to continue it with another configuration.

    Args:
        folder: of the run.
        position: how far it has come.
        differences: between its configuration and the wanted one; empty if there are none.
        resume: whether it may be continued.

    Raises:
        RunExistsError: ``resume`` is false.
        ConfigError: the configurations differ.
    """
    if not resume:
        other = f"another one ({differences}): pass another --out"
        advice = other if differences else "pass --resume to continue, or another --out"
        raise RunExistsError(f"{folder} already contains a run ({position}); {advice}")
    if differences:
        raise ConfigError(f"{folder} contains another run: {differences}. Pass another --out, or omit these flags")


def read_result(folder: Path) -> Result | None:
    """Read the result in a folder; None if there is none.

    Raises:
        CheckpointError: the file cannot be read.
    """
    return read_record(folder, Result.from_dict)


def read_record(folder: Path, read: Callable[[Any], R]) -> R | None:
    """Read ``result.json`` in a folder; None if there is none.

    Args:
        folder: of a run.
        read: makes the result of plain values.

    Raises:
        CheckpointError: the file cannot be read.
    """
    path = folder / RESULT
    if not path.exists():
        return None
    try:
        return read(untrusted_json.parse(path.read_bytes()))
    except (ValueError, OSError) as problem:
        raise checkpoints.CheckpointError(f"{path}: not a result of spectralgrad: {problem}") from None


def _result_in(folder: Path, state: Any) -> Result:
    """The result stored in a checkpoint."""
    try:
        return Result.from_dict(state.get("result"))
    except ValueError as problem:
        raise checkpoints.damaged(folder, problem) from None
