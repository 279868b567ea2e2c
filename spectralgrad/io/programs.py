"""Runs somebody's program inside this process, as ``python`` would."""

from __future__ import annotations

import argparse
import errno
import importlib.util
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path


def add_program(parser: argparse.ArgumentParser, options: str) -> None:
    """Add the arguments that name a program: a file or ``-m`` and a module, and everything that follows.

    Args:
        parser: the parser of the command.
        options: the options of the command itself, for the line of usage.
    """
    parser.usage = f"%(prog)s [-h] {options} [-m MODULE | FILE] [ARGUMENT ...]"
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="run a module, as python -m does"
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="FILE", help="the program; its arguments follow")
    parser.set_defaults(hint="; options of the program follow FILE or MODULE")


def run(options: argparse.Namespace) -> int:
    """Run the program of :func:`add_program` and return its exit status.

    An exception is printed with its traceback, as Python prints it, and gives status 1.

    Raises:
        FileNotFoundError: there is no such file.
        ImportError: there is no such module.
    """
    target = options.module or options.program
    if not target:
        options.parser.error("expected a program: FILE, or -m MODULE")
    before = sys.argv, sys.path[:]
    try:
        return _run(target, is_module=bool(options.module))
    finally:
        sys.argv, sys.path[:] = before


def _run(target: Sequence[str], is_module: bool) -> int:
    sys.argv = list(target)
    sys.path.insert(0, "" if is_module else str(Path(target[0]).resolve().parent))
    if is_module:
        _require_module(target[0])
    elif not Path(target[0]).exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), target[0])
    try:
        if is_module:
            runpy.run_module(target[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(target[0], run_name="__main__")
    except SystemExit as end:
        return _status(end)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _require_module(name: str) -> None:
    """Raise ImportError if there is no module ``name``; an error inside a package above it is left to the run."""
    try:
        missing = importlib.util.find_spec(name) is None
    except ModuleNotFoundError as problem:
        missing = f"{name}.".startswith(f"{problem.name}.")
    except Exception:
        return
    if missing:
        raise ImportError(f"no module named {name}")


def _status(end: SystemExit) -> int:
    """The exit status of ``sys.exit``; a message goes to stderr and gives 1."""
    if end.code is None or isinstance(end.code, int):
        return int(end.code or 0)
    print(end.code, file=sys.stderr)
    return 1
