"""The command ``spectralgrad rescue``: a program with torch's spectral functions replaced."""

from __future__ import annotations

import argparse
from typing import NoReturn

from ..io import programs
from .override import override_linalg

_DESCRIPTION = """\
Run a Python program with torch.linalg.eigh, svd and the functions built on them replaced by spectralgrad's,
whose gradients are finite at repeated eigenvalues. The program is not modified, and runs as `python` runs it. The
replacement applies to all its threads and to the processes that it starts by multiprocessing, such as workers of a
DataLoader, until the process ends."""
_EXAMPLES = """\
examples:
  spectralgrad rescue train.py --epochs 3
  spectralgrad rescue -m pytest tests
  torchrun --nproc-per-node 2 -m spectralgrad rescue train.py"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--method",
        default="svd-pade",
        metavar="NAME",
        help="a method for both eigh and svd, see `spectralgrad info` (default: svd-pade)",
    )
    programs.add_program(parser, "[--method NAME]")
    parser.set_defaults(run=rescue)


def rescue(options: argparse.Namespace) -> NoReturn:
    """Start the program, with :func:`begin` when it has imported torch."""
    override_linalg(options.method)  # an unknown method is an error now
    programs.start(options, f"{__name__}:{begin.__name__}", {"method": options.method})


def begin(method: str) -> None:
    """Switch the replacement on; it stays on until the process ends."""
    override_linalg(method).enable()
