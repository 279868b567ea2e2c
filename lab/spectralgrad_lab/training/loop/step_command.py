"""What the commands that train over numbered steps share: flags, the folder of the run, messages, exit status."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spectralgrad.io.files import path_argument

from ..config.flags import add_fields, with_flags
from ..config.settings import ConfigError
from ..processes.memory import keep_memory
from ..storage.resuming import RunExistsError
from ..storage.run_files import CONFIG
from ..storage.step_records import S, StepResult
from .exit_status import FAILED, STOPPING, print_stop, short_warnings
from .step_progress import StepProgress, steps_for_terminal


def add_step_arguments(parser: argparse.ArgumentParser, defaults: S, titles: Mapping[str, str], out: str) -> None:
    """Add ``--out``, ``--resume`` and a flag for every field of a configuration.

    Args:
        parser: the parser of a command.
        defaults: the default values that the help text shows.
        titles: the headings of the help text, by the ``group`` of a field.
        out: the default folder of the run.
    """
    parser.add_argument(
        "--out", type=path_argument, default=Path(out), metavar="DIR", help=f"folder of the run (default: {out})"
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in the folder, if there is one")
    add_fields(parser, defaults, titles)


def config_of(options: argparse.Namespace, defaults: S) -> S:
    """The configuration that the flags describe; a resumed run starts from its own ``config.toml``.

    Raises:
        ConfigError: a value is invalid.
    """
    known = options.out / CONFIG
    start = type(defaults).from_toml(known, defaults) if options.resume and known.exists() else defaults
    return start.replaced(**{name: value for name, value in vars(options).items() if name in start.fields()})


def run_step_command(
    options: argparse.Namespace,
    command: str,
    defaults: S,
    train: Callable[[S, Path, bool, StepProgress], StepResult[S]],
    parser: argparse.ArgumentParser,
) -> int:
    """Train as the options say; returns the exit status: 0 done, 1 error, 3 the run failed, 130 stopped by Ctrl-C.

    Args:
        options: made by :func:`add_step_arguments`.
        command: its words, such as ``"spectralgrad transfer train"``.
        defaults: the values of flags that are not given.
        train: trains with a configuration, a folder, whether to resume, and progress callbacks.
        parser: prints the usage if a flag is invalid, and exits with 2.
    """
    nothing = options.resume and not (options.out / CONFIG).exists()
    hint = f"; there is no run in {options.out} to resume" if nothing else ""
    try:
        config = config_of(options, defaults)
    except ConfigError as problem:
        parser.error(f"{with_flags(problem, defaults.fields())}{hint}")
    is_leader = os.environ.get("RANK", "0") == "0"
    keep_memory()
    try:
        with short_warnings():
            result = train(config, options.out, options.resume, steps_for_terminal())
    except (ConfigError, RunExistsError) as problem:
        parser.error(f"{with_flags(problem, defaults.fields())}{hint}")
    except STOPPING as problem:
        return print_stop(problem, command, options.out, is_leader)
    if is_leader:
        print(_ending(result, options.out))
    return FAILED if result.status == "failed" else 0


def _ending(result: StepResult[Any], out: Path) -> str:
    if result.failure is not None:
        return f"failed at {result.failure}\nkept in {out}"
    losses = ", ".join(f"{name} {value:.4g}" for name, value in result.losses.items())
    return f"done: {result.step} steps in {result.seconds:.0f} s{f', {losses}' if losses else ''}; kept in {out}"
