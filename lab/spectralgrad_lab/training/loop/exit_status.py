"""How a training command ends: what it prints when a run stops early, and its exit status."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spectralgrad.io.files import said

from ..processes.interrupts import Stopped
from ..processes.process_group import WorkerLostError
from ..storage.checkpoints import POINTER

FAILED = 3
"""The exit status if a run failed (diverged)."""
STOPPING = (WorkerLostError, Stopped, KeyboardInterrupt, OSError)
"""The errors that stop a run early."""


def print_stop(problem: BaseException, command: str, out: Path, is_leader: bool, flags: Sequence[str] = ()) -> int:
    """Print why a run stopped early and what is kept; returns the exit status.

    Args:
        problem: one of ``STOPPING``.
        command: that was run, such as ``"spectralgrad train"``; with ``--out`` and ``--resume`` it continues the run.
        out: folder of the run.
        is_leader: whether this process reports signals; every process reports its own errors.
        flags: that are also needed to continue.
    """
    advice = f"Continue with: {command} {shlex.join(['--out', str(out), '--resume', *flags])}"
    if isinstance(problem, WorkerLostError | OSError):
        kept = f"the last checkpoint is kept. {advice}" if (out / POINTER).is_file() else "no checkpoint was kept"
        text = f"{said(problem)}; {kept}" if isinstance(problem, OSError) else f"{problem}\n{advice}"
        print(f"{command}: {text}", file=sys.stderr)
        return 1
    if is_leader:
        stopped = isinstance(problem, Stopped)
        text = f"{problem}; the checkpoint is kept" if stopped else "stopped in the middle of a step"
        print(f"\n{text}. {advice}", file=sys.stderr)
    return 128 + problem.signal if isinstance(problem, Stopped) else 130


@contextmanager
def short_warnings() -> Iterator[None]:
    """Context in which warnings are printed as one line, without the source location, and none is repeated."""
    before, shown = warnings.formatwarning, set()

    def line(message: Warning | str, category: type[Warning], *_: object, **__: object) -> str:
        text = f"{category.__name__}: {message}\n"
        first = text not in shown
        shown.add(text)
        return text if first else ""

    warnings.formatwarning = line
    try:
        yield
    finally:
        warnings.formatwarning = before
