"""The command ``spectralgrad doctor``: a program, and the report of its spectral calls."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from ...io import programs
from ...io.encoding import any_encoding
from ...io.files import path_argument, require_writable, said
from .report import Report
from .session import doctor

_DESCRIPTION = """\
Run a Python program, such as a few training steps, and report on its calls of torch.linalg.eigh, svd and the functions
of spectralgrad: where they are, ties, gaps, rank and conditioning, which of them makes a gradient non-finite or wrong,
and what to write instead. The report goes to stderr, also if the program fails; results do not change.
Calls in other threads and processes, and in compiled functions, are not examined."""
_EXAMPLES = """\
examples:
  spectralgrad doctor train.py --epochs 1
  spectralgrad doctor --json report.json -m package.train"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", type=path_argument, metavar="FILE", help="also write the report as JSON")
    programs.add_program(parser, "[--json FILE]")
    parser.set_defaults(run=examine)


def examine(options: argparse.Namespace) -> NoReturn:
    """Start the program, with :func:`begin` when it has imported torch."""
    require_writable(options.json)
    json = str(options.json.absolute()) if options.json else None  # the program may change the working directory
    idle = None if json else "\nNo spectral operation was called: the program did not import torch."
    programs.start(options, f"{__name__}:{begin.__name__}", {"json": json}, idle=idle)


def begin(json: str | None) -> Callable[[], None]:
    """Watch this thread from now on; return what reports at the end of the process."""
    report = doctor().__enter__()
    return partial(_conclude, report, json)


def _conclude(report: Report, json: str | None) -> None:
    try:
        if json:
            report.save(json)
    except OSError as problem:
        print(f"spectralgrad doctor: {said(problem)}", file=sys.stderr)
    with any_encoding():
        print(f"\n{report}", file=sys.stderr)
