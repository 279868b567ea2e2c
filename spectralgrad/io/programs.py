"""Starts somebody's program: Python itself runs it, and calls us when it has imported torch."""

from __future__ import annotations

import argparse
import errno
import getopt
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

_PACKAGE = Path(__file__).absolute().parents[1]


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


def start(options: argparse.Namespace, begin: str, arguments: dict[str, Any], *, idle: str | None = "") -> NoReturn:
    """Replace this process by Python and the program of :func:`add_program`.

    The new interpreter runs the program as ``python FILE`` does, because it is ``python FILE``; ``startup/`` says how
    it calls us.

    Args:
        options: the parsed arguments.
        begin: a function, as ``module:name``, to be called when the program has imported torch. It may return another
            one, to be called when the process ends.
        arguments: keyword arguments of ``begin``, as JSON has them.
        idle: a line for stderr if the program ends without having imported torch; None: call ``begin`` then.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: Python does not read its environment or the folder of this package cannot stand there.
    """
    target = options.module or options.program
    if not target:
        options.parser.error("expected a program: FILE, or -m MODULE")
    if not options.module and not Path(target[0]).exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), target[0])
    plan = {"root": str(_PACKAGE.parent), "begin": begin, "arguments": arguments, "idle": idle}
    command = [sys.executable, *_options_of_python(), *(["-m"] if options.module else []), *target]
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if os.name == "nt":  # where the shell would not wait for the new process
        sys.exit(subprocess.call(command, env=_environment(plan)))
    os.execve(sys.executable, command, _environment(plan))


def _environment(plan: dict[str, Any]) -> dict[str, str]:
    """The environment in which Python finds ``startup/``, which restores it."""
    folder, path = str(_PACKAGE / "io" / "startup"), os.environ.get("PYTHONPATH")
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise ValueError("expected Python without the options -E, -I and -S: they keep this command from starting")
    if os.pathsep in folder:
        raise ValueError(f"expected to be installed in a folder without {os.pathsep!r} in its name, got {folder}")
    both = os.pathsep.join([folder, path] if path else [folder])
    return {**os.environ, "PYTHONPATH": both, "SPECTRALGRAD_START": json.dumps({**plan, "path": path})}


def _options_of_python() -> list[str]:
    """The options with which this interpreter was started, such as ``-u`` and ``-W error``."""
    ours = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]  # ends with -m spectralgrad or with a script
    try:
        found, _ = getopt.getopt(ours, "bBc:dEhiIm:OPqRsStuvVW:xX:?", ["check-hash-based-pycs="])
    except getopt.GetoptError:  # called from Python, so this is not our command line
        return []
    return [part for option in found if option[0] not in ("-c", "-m") for part in option if part]
