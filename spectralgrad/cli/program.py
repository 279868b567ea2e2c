"""Running a command: its exit status, and errors as one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .._lazy import complete
from ..io.encoding import any_encoding
from ..io.files import said
from ..io.memory import out_of_memory
from .parser import parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Characters that the encoding of stdout or stderr lacks are written in ASCII.

    Args:
        arguments: the command and its arguments (default: ``sys.argv[1:]``).

    Returns:
        0 on success, 1 after an error (with a one-line message on stderr), 130 if stopped by Ctrl-C, and whatever else
        the command returns; ``train`` returns 3 if the run failed. Wrong usage raises ``SystemExit(2)``, as argparse
        does. ``rescue`` and ``doctor`` do not return: they replace this process by Python and the program.
    """
    with any_encoding():
        return _run(parsed(sys.argv[1:] if arguments is None else list(arguments)))


def _run(options: argparse.Namespace) -> int:
    complete()
    from ..errors import SpectralError

    try:
        return options.run(options) or 0
    except BrokenPipeError:  # the reader of the pipe is gone: without this, flushing stdout at exit raises again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (SpectralError, OSError, ValueError, ImportError) as problem:
        text = said(problem) if isinstance(problem, OSError) else problem
        print(f"spectralgrad {options.command}: {text}", file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as problem:
        if not (text := out_of_memory(problem)):
            raise
        print(f"spectralgrad {options.command}: {text}{_advice(options.parser.format_help())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _advice(usage: str) -> str:
    """The flags of a command that reduce its memory, according to its help text."""
    flags = ("--batch-size", "--threads", "--jobs", "--size ", "--longest")
    found = [flag.strip() for flag in flags if flag in usage]
    return f"; try a smaller {' or '.join(found)}" if found else ""
