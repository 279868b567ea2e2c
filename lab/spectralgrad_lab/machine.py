"""A description of this machine, for reports of measurements."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from spectralgrad import __version__
from spectralgrad.errors import SpectralError
from spectralgrad.native import kernel


def machine() -> dict[str, Any]:
    """Hardware and software of this machine.

    Example:
        >>> sorted(machine())
        ['cores', 'cpu', 'date', 'instruction set', 'kernel', 'load', 'platform', 'python', 'spectralgrad', 'threads',
         'torch']
    """
    return {
        "cpu": _cpu(),
        "instruction set": torch.backends.cpu.get_cpu_capability(),
        "kernel": _kernel(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "load": load(),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "spectralgrad": __version__,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def set_threads(count: int, error: type[SpectralError]) -> None:
    """Set the number of torch's threads; the thread library ends the process if it cannot start that many.

    Raises:
        error: more than four for each processor.

    Example:
        >>> set_threads(torch.get_num_threads(), SpectralError)
    """
    processors = os.cpu_count() or 1
    if not 1 <= count <= 4 * processors:
        why = f"as this machine has {processors} processor{'s' if processors > 1 else ''}"
        raise error(f"threads: expected 1 to {4 * processors}, {why}, got {count}")
    torch.set_num_threads(count)


def load() -> float | None:
    """The load average of the last minute; None where the system does not provide it."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _kernel() -> str | None:
    """The instruction set of the native kernel; None if torch.linalg is used instead."""
    native = kernel()
    return None if native is None else native.isa
