"""The command ``spectralgrad doctor``: a program, and the report of its spectral calls."""

from __future__ import annotations

import argparse
import sys

from ...io import programs
from ...io.files import path_argument, require_writable
from .visit import doctor

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


def examine(options: argparse.Namespace) -> int:
    """Run the program, print the report and return the exit status of the program."""
    require_writable(options.json)
    with doctor() as report:
        status = programs.run(options)
    print(f"\n{report}", file=sys.stderr)
    if options.json:
        report.save(options.json)
    return status
