"""Where runs are carried out: here, in processes of this machine, or on many machines through submitit."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import torch

from spectralgrad.errors import SpectralError
from spectralgrad.io.files import said

from ..training.config import Config
from ..training.interrupts import Stopped
from ..training.memory import keep_memory
from ..training.records import Result
from ..training.run import train

KEPT = "finished runs are kept, and the same command goes on with the others"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

_stop = threading.Event()  # in a process of a pool: no more runs


class JobError(SpectralError, RuntimeError):
    """A run could not be carried out: not one that diverged, which is a result."""


@dataclass(frozen=True)
class Job:
    """One run, and the folder that keeps its checkpoint.

    Example:
        >>> Job("exact-seed0", Config(), Path("runs/exact-seed0")).name
        'exact-seed0'
    """

    name: str
    config: Config
    folder: Path


def carry_out(job: Job) -> Result:
    """Train, or go on from the checkpoint in the job's folder."""
    keep_memory()
    return train(job.config, job.folder, resume=True)


def _apart(job: Job) -> Result:
    """The same in another process, from where an error has to travel as plain text."""
    if _stop.is_set():  # the pool hands out jobs before a process is free
        raise JobError(f"{job.name}: not begun")
    try:
        return carry_out(job)
    except Stopped as stopped:
        _stop.set()
        raise JobError(f"{job.name}: {stopped}") from None
    except (SpectralError, OSError, ValueError, RuntimeError, ImportError) as problem:
        text = f"{said(problem)}; {KEPT}" if isinstance(problem, OSError) else problem
        raise JobError(f"{job.name}: {text}") from None


class Engine(Protocol):
    """Carries out jobs in any order and yields each with its result."""

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]: ...


class Here:
    """One run after another in this process, with all threads of torch.

    Example:
        >>> list(Here().run([]))
        []
    """

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        for job in jobs:
            yield job, carry_out(job)


@dataclass(frozen=True)
class Processes:
    """Several runs at a time on this machine, its cores divided among them.

    Args:
        count: how many at a time.

    Example:
        >>> Processes(2).threads <= (os.cpu_count() or 1)
        True
    """

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise JobError(f"expected at least one job at a time, got {self.count}")

    @property
    def threads(self) -> int:
        """Of each run."""
        return max(1, cores() // self.count)

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        """Processes are started afresh, so that each has its own threads and nothing of this one's state.

        Raises:
            JobError: a process was killed.
        """
        if not jobs:
            return
        context, count = get_context("spawn"), min(self.count, len(jobs))
        heard, said = context.Pipe(duplex=False)  # closed, it says stop; an Event would wait for a killed process
        pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(self.threads, heard))
        try:
            futures = {pool.submit(_apart, job): job for job in jobs}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise JobError(f"a process was killed, perhaps for want of memory: try fewer --jobs; {KEPT}") from None
        finally:
            said.close()
            pool.shutdown(cancel_futures=True)
            heard.close()


def _begin(threads: int, heard: Connection) -> None:
    """In a new process, before its first run. Between runs signals are its parent's affair, with which it ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_follow, daemon=True).start()
    threading.Thread(target=_obey, args=(heard,), daemon=True).start()
    os.environ.update(dict.fromkeys(_THREADS, str(threads)))
    torch.set_num_threads(threads)


def _follow() -> None:
    """End when the process that started this one has gone; checkpoints are whole at any moment."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _obey(heard: Connection) -> None:
    """When the others are to end, a run in progress keeps its checkpoint and ends too, and none is begun."""
    heard.poll(None)
    _stop.set()
    os.kill(os.getpid(), signal.SIGTERM)


def cores() -> int:
    """Those this process may use.

    Example:
        >>> 1 <= cores() <= os.cpu_count()
        True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Submitit:
    """Runs as jobs of a cluster, through submitit (extra ``[cluster]``).

    Args:
        folder: on a disk that all machines see; gets submitit's logs.
        cluster: ``"slurm"``, ``"local"``, ``"debug"``, or None for what submitit finds.
        options: passed to ``AutoExecutor.update_parameters``, such as ``timeout_min`` and ``slurm_partition``.

    Raises:
        JobError: submitit is not installed, or does not take the options.
    """

    def __init__(self, folder: Path, cluster: str | None = None, options: Mapping[str, Any] | None = None) -> None:
        try:
            import submitit
        except ImportError:
            raise JobError("many machines need submitit: pip install 'spectralgrad[cluster]'") from None
        self._as_completed = submitit.helpers.as_completed
        try:
            self._executor = submitit.AutoExecutor(folder=str(folder), cluster=cluster)
            self._executor.update_parameters(**(options or {}))
        except (ValueError, NameError, TypeError, RuntimeError) as problem:
            raise JobError(f"submitit: {problem}") from None

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        """All jobs at once; the cluster's queue sees to the order. Those left over are cancelled, however this ends.

        Raises:
            JobError: one ended without a result.
        """
        if not jobs:
            return
        absolute = [Job(job.name, job.config, job.folder.resolve()) for job in jobs]
        with self._executor.batch():
            sent = {self._executor.submit(_apart, job): job for job in absolute}
        try:
            for handle in self._as_completed(list(sent), poll_frequency=2):
                yield sent[handle], _fetched(handle, sent[handle].name)
        finally:
            for handle in sent:
                if not handle.done():
                    handle.cancel(check=False)


def _fetched(handle: Any, name: str) -> Result:
    try:
        result: Result = handle.result()
    except (RuntimeError, OSError) as problem:
        last = str(problem).strip().splitlines()[-1]
        raise JobError(f"{name}: no result from the cluster: {last}") from None
    return result
