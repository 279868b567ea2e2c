"""The command ``spectralgrad doctor``: a program, and the report of its spectral calls."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from ...io import programs
from ...io.encoding import any_encoding
from ...io.files import require_writable, said
from .report import Report
from .session import doctor


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
