"""Where runs are carried out: in this process, in other processes of this machine, or on a cluster with submitit."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from spectralgrad.errors import SpectralError
from spectralgrad.io.files import said
from spectralgrad.io.memory import out_of_memory

from ..training.config.run_config import Config
from ..training.loop.run import train
from ..training.processes.interrupts import Stopped
from ..training.processes.memory import keep_memory
from ..training.storage.records import Result

KEPT = "finished runs are kept; run the same command again to continue"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

T = TypeVar("T")
R = TypeVar("R")

_stop = threading.Event()  # set in a worker process that must not start another run


class JobError(SpectralError, RuntimeError):
    """A run could not be carried out. (A run that diverges is a result, not an error.)"""


class JobStoppedError(JobError):
    """A run was stopped by a signal after its checkpoint was written, or was not started for that reason."""


@dataclass(frozen=True)
class Job:
    """One run and the folder of its checkpoint.

    Example:
        >>> Job("exact-seed0", Config(), Path("runs/exact-seed0")).name
        'exact-seed0'
    """

    name: str
    config: Config
    folder: Path


def carry_out(job: Job) -> Result:
    """Train, or resume from the checkpoint in the job's folder."""
    keep_memory()
    return train(job.config, job.folder, resume=True)


def _in_worker(job: Job) -> Result:
    """Carry out a job in a worker process, whose errors are reported with the job's name."""
    with worker_errors(job.name):
        return carry_out(job)


@contextmanager
def worker_errors(name: str) -> Iterator[None]:
    """Context of a run in a worker process. Errors become plain text, since not every exception can be pickled.

    Args:
        name: of the run, for the messages.

    Raises:
        JobStoppedError: a signal stopped the run, or the process must not start another one.
        JobError: the run could not be carried out.
    """
    if _stop.is_set():  # the pool hands out jobs before a process is free
        raise JobStoppedError(f"{name}: not started")
    try:
        yield
    except Stopped as stopped:
        _stop.set()
        raise JobStoppedError(f"{name}: {stopped}") from None
    except (SpectralError, OSError, ValueError, RuntimeError, ImportError, MemoryError) as problem:
        text = f"{said(problem)}; {KEPT}" if isinstance(problem, OSError) else str(problem)
        if memory := out_of_memory(problem):
            text = f"{memory}; try a smaller --batch-size or fewer --jobs; {KEPT}"
        raise JobError(f"{name}: {text}") from None


class Engine(Protocol):
    """Carries out jobs in any order and yields each job with its result."""

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]: ...


class InProcess:
    """One run after another in this process, with all threads of torch.

    Example:
        >>> list(InProcess().run([]))
        []
    """

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        for job in jobs:
            yield job, carry_out(job)


@dataclass(frozen=True)
class Processes:
    """Several runs at a time on this machine, which share its cores.

    Args:
        count: number of runs at a time.

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
        """Number of threads of each run."""
        return max(1, available_cores() // self.count)

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        """Carry out jobs in new processes; see :meth:`map`."""
        return self.map(_in_worker, jobs)

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[T, R]]:
        """Apply a function to tasks in new processes, which have their own threads and share no state with this one.

        Args:
            function: of a module, so that another process can import it. SIGTERM tells it to stop.
            tasks: its arguments.

        Yields:
            each task with its result, in the order in which they finish.

        Raises:
            JobError: a process was killed.
            KeyboardInterrupt: a signal stopped a run. Workers receive Ctrl-C too. A command in the background ignores
                it, so the workers may be the only ones to react.
        """
        if not tasks:
            return
        context, count = get_context("spawn"), min(self.count, len(tasks))
        # Closing the pipe tells the workers to stop. An Event would deadlock if a worker was killed while holding it.
        receiver, sender = context.Pipe(duplex=False)
        pool = ProcessPoolExecutor(count, context, initializer=_start_worker, initargs=(self.threads, receiver))
        try:
            futures = {pool.submit(function, task): task for task in tasks}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except JobStoppedError as stopped:
            raise KeyboardInterrupt(str(stopped)) from None
        except BrokenProcessPool:
            raise JobError(f"a process was killed, perhaps out of memory: try fewer --jobs; {KEPT}") from None
        finally:
            sender.close()
            pool.shutdown(cancel_futures=True)
            receiver.close()


def _start_worker(threads: int, receiver: Connection) -> None:
    """Prepare a new worker. Between runs it ignores signals: its parent handles them, and it exits with its parent."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    threading.Thread(target=_stop_when_told, args=(receiver,), daemon=True).start()
    os.environ.update(dict.fromkeys(_THREADS, str(threads)))
    torch.set_num_threads(threads)


def _exit_with_parent() -> None:
    """Exit when the parent process has died. This is safe, since checkpoints are valid at any moment."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _stop_when_told(receiver: Connection) -> None:
    """Wait for the parent to close the pipe; then stop the current run after its checkpoint, and start no other."""
    receiver.poll(None)
    _stop.set()
    os.kill(os.getpid(), signal.SIGTERM)


def available_cores() -> int:
    """The number of cores that this process may use.

    Example:
        >>> 1 <= available_cores() <= os.cpu_count()
        True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Submitit:
    """Runs as jobs of a cluster, with submitit (extra ``[cluster]``).

    Args:
        folder: on a disk that all machines share; receives submitit's logs.
        cluster: ``"slurm"``, ``"local"``, ``"debug"``, or None to let submitit choose.
        options: passed to ``AutoExecutor.update_parameters``, such as ``timeout_min`` and ``slurm_partition``.

    Raises:
        JobError: submitit is not installed or rejects the options.
    """

    def __init__(self, folder: Path, cluster: str | None = None, options: Mapping[str, Any] | None = None) -> None:
        try:
            import submitit
        except ImportError:
            raise JobError("running on a cluster needs submitit: pip install -e './lab[cluster]'") from None
        self._as_completed = submitit.helpers.as_completed
        try:
            self._executor = submitit.AutoExecutor(folder=str(folder), cluster=cluster)
            self._executor.update_parameters(**(options or {}))
        except (ValueError, NameError, TypeError, RuntimeError) as problem:
            raise JobError(f"submitit: {problem}") from None

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        """Submit all jobs at once; the queue of the cluster decides the order. Unfinished jobs are cancelled on exit.

        Raises:
            JobError: a job ended without a result.
        """
        if not jobs:
            return
        absolute = [Job(job.name, job.config, job.folder.resolve()) for job in jobs]
        with self._executor.batch():
            sent = {self._executor.submit(_in_worker, job): job for job in absolute}
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
