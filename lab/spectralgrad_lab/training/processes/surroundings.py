"""What surrounds a run: threads, processes, signals, the lock of its folder, random states; all undone afterwards."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import torch

from spectralgrad import solvers
from spectralgrad.errors import SpectralError
from spectralgrad.io.files import naming

from ...import_by_name import exit_is_an_error
from ...machine import set_threads
from ..config.settings import ConfigError
from ..storage import randomness
from ..storage.locks import sole_writer
from .interrupts import Stop, Stopped, stoppable
from .process_group import Group, processes


@dataclass(frozen=True)
class Session:
    """The surroundings of a run.

    Attributes:
        folder: of the run; None if nothing is written.
        group: the processes that train together.
        stop: whether a signal asked to stop.
    """

    folder: Path | None = None
    group: Group = field(default_factory=Group)
    stop: Stop = field(default_factory=Stop)

    @property
    def written(self) -> Path | None:
        """The folder in the process that writes to it, None in the others."""
        return self.folder if self.group.is_leader else None

    def seed(self, number: int) -> None:
        """Seed the generators of this process; each process has numbers of its own."""
        randomness.seed(number + 1_000_003 * self.group.rank)

    def raise_stopped(self) -> None:
        """Raise what a stopped run raises."""
        raise Stopped(self.stop.signal or signal.SIGINT)


@contextmanager
def session(folder: str | Path | None = None, *, device: str = "auto", threads: int | None = None) -> Iterator[Session]:
    """Context of a run. Under torchrun, or in a process group of the caller, all processes take part in it.

    Inside, Ctrl-C and SIGTERM only set a flag, no other run can write to the folder, and errors of the operating system
    name it. Random states and the number of threads are restored afterwards.

    Args:
        folder: of the run; None writes nothing.
        device: ``"auto"``, ``"cpu"``, or a GPU.
        threads: of torch (default: unchanged).

    Raises:
        ConfigError: torch cannot use the device, or too many threads are asked for.
        RunBusyError: another process is writing to the folder.
        WorkerLostError: another process died inside the block.
        SpectralError: an earlier run in the caller's process group failed, or code of the user called ``exit()``.

    Example:
        >>> with session(threads=1) as now:
        ...     now.group.is_leader, now.stop.wanted
        (True, False)
    """
    where = None if folder is None else Path(folder)
    state, before = randomness.capture(), torch.get_num_threads()
    try:
        if threads is not None:
            set_threads(threads, ConfigError)
        with (
            exit_is_an_error("code of the dataset or the network", SpectralError),
            processes(device) as group,
            stoppable() as stop,
            naming(where),
            sole_writer(where, group),
        ):
            yield Session(where, group, stop)
    finally:
        torch.set_num_threads(before)
        randomness.restore(state)


class WorkClock:
    """Counts the seconds that a run has worked, over all interruptions.

    Example:
        >>> WorkClock(60.0).seconds >= 60
        True
    """

    def __init__(self, before: float = 0.0) -> None:
        self._before, self._began = before, perf_counter()

    @property
    def seconds(self) -> float:
        return self._before + perf_counter() - self._began


class SolverFailures:
    """Counts the matrices that the solver of this process did not decompose at once, over all interruptions of a run.

    Most of them are decomposed by a fallback, see :mod:`spectralgrad.solvers`; the others end the run.

    Example:
        >>> SolverFailures(3).number
        3
    """

    def __init__(self, before: int = 0) -> None:
        self._before, self._began = before, self._counted()

    @property
    def number(self) -> int:
        return self._before + self._counted() - self._began

    @staticmethod
    def _counted() -> int:
        report = solvers.report()
        return sum(report.fallbacks.values()) + report.failures
