"""Runs somebody's program inside this process, as ``python`` would."""

from __future__ import annotations

import argparse
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path


def add_program(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a program: a file or ``-m`` and a module, and everything that follows."""
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run a module instead, as python -m does")
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="FILE [ARGUMENT ...]", help="the program and its arguments"
    )


def run(options: argparse.Namespace) -> int:
    """Run the program of :func:`add_program` and return its exit status.

    An exception is printed with its traceback, as Python prints it, and gives status 1.
    """
    target = options.module or options.program
    if not target:
        options.parser.error("expected a program: FILE, or -m MODULE")
    before = sys.argv, sys.path[:]
    try:
        _run(target, is_module=bool(options.module))
    except SystemExit as end:
        return _status(end)
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        sys.argv, sys.path[:] = before
    return 0


def _run(target: Sequence[str], is_module: bool) -> None:
    sys.argv = list(target)
    if is_module:
        sys.path.insert(0, "")
        runpy.run_module(target[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(target[0]).resolve().parent))
        runpy.run_path(target[0], run_name="__main__")


def _status(end: SystemExit) -> int:
    """The exit status of ``sys.exit``; a message goes to stderr and gives 1."""
    if end.code is None or isinstance(end.code, int):
        return int(end.code or 0)
    print(end.code, file=sys.stderr)
    return 1
