"""The command ``spectralgrad rescue``: a program with torch's spectral functions replaced."""

from __future__ import annotations

import argparse
from typing import NoReturn

from ..io import programs
from .override import override_linalg


def rescue(options: argparse.Namespace) -> NoReturn:
    """Start the program, with :func:`begin` when it has imported torch."""
    override_linalg(options.method)  # an unknown method is an error now
    programs.start(options, f"{__name__}:{begin.__name__}", {"method": options.method})


def begin(method: str) -> None:
    """Switch the replacement on; it stays on until the process ends."""
    override_linalg(method).enable()
