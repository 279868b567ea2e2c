"""A run over numbered steps: checkpoints, a log, progress, several processes, and failures with their reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Generic, Protocol

from spectralgrad.io.files import write_json

from ..config.settings import ConfigError
from ..processes.agreed_sums import agreed_ending
from ..processes.surroundings import Session, WorkClock, session
from ..storage import checkpoints, randomness
from ..storage.checkpoint_times import Saves, restore_random
from ..storage.json_lines import StepLog
from ..storage.records import Failure
from ..storage.resuming import check_same_run, read_record
from ..storage.run_files import RESULT, begin_files
from ..storage.step_records import Means, S, StepResult
from ..storage.tensorboard_events import event_writer
from .failures import DivergedError
from .step_progress import SilentSteps, StepProgress, TakenStep
from .steps import Stopwatch

STEP_LOG = "log.jsonl"


class StepTask(Protocol):
    """What a run over numbered steps trains.

    The numbers of a step must depend only on the state, on ``number`` and on the random generators of torch, Python and
    numpy, which a checkpoint stores. :class:`~spectralgrad_lab.training.loop.loss_step.Learner` minimizes a loss
    over all processes.
    """

    def step(self, number: int) -> dict[str, float]:
        """Take the step with this number, counted from 0; returns what to log, the same in all processes.

        Raises:
            DivergedError: the step failed.
        """
        ...

    def after(self, number: int) -> None:
        """Called in the leading process after each step, for instance to draw samples."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything needed to resume, as tensors and plain values; weights under ``"model"``."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a :meth:`state` that was read from a file.

        Raises:
            ValueError: the state does not fit.
        """
        ...


def run_steps(
    config: S,
    build: Callable[[Session], StepTask],
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    progress: StepProgress | None = None,
) -> StepResult[S]:
    """Train for ``config.steps`` steps, from the beginning or from the checkpoint in the folder.

    Under torchrun, or in a process group of the caller, all processes take part and rank 0 writes the files. A run that
    diverges returns a result with status ``"failed"``. Ctrl-C and SIGTERM take effect at the end of the step, after a
    checkpoint.

    Args:
        config: of the run.
        build: makes what is trained, after all generators were seeded with ``config.seed``.
        folder: receives config.toml, result.json, log.jsonl, a checkpoint and TensorBoard events; None writes nothing.
        resume: continue from the checkpoint in the folder, if there is one, with the same results as a run without
            interruption. A finished or failed run is returned as it is, unless ``config`` has more steps.
        progress: progress callbacks (default: none).

    Returns:
        the result.

    Raises:
        ConfigError: the configuration differs from the one of the run in the folder.
        RunBusyError: another process is writing to the folder.
        RunExistsError: the folder contains a run and ``resume`` is false.
        CheckpointError: the checkpoint is damaged.
        OSError: a file could not be written; the last checkpoint is still valid.
        Stopped: a signal stopped the run; the checkpoint was written.
        WorkerLostError: another process died.
    """
    with session(folder, device=config.device, threads=config.threads) as now:
        known, state = _earlier(config, now.folder, resume)
        now.group.barrier()  # no process may write before all have read the folder
        if known is not None and (known.status == "failed" or (known.status == "done" and known.step == config.steps)):
            return known
        shown = progress if progress is not None and now.group.is_leader else SilentSteps()
        return _Loop(config, build, now, shown, state).go()


def _earlier(config: S, folder: Path | None, resume: bool) -> tuple[StepResult[S] | None, dict[str, Any] | None]:
    """The result of the run in the folder and the state in its checkpoint."""
    if folder is None:
        return None, None
    known = read_record(folder, lambda values: StepResult.from_dict(values, type(config)))
    state = checkpoints.load(folder)
    if known is None and state is None:
        return None, None
    if known is None:
        known = _result_in(folder, state, config)
    check_same_run(folder, known.position, known.config.differences(config), resume)
    if known.step > config.steps:
        raise ConfigError(
            f"{folder} contains a longer run of {known.step} steps; expected at least as many, or another --out, "
            f"got {config.steps}"
        )
    return known, state


def _result_in(folder: Path | None, state: Any, config: S) -> StepResult[S]:
    try:
        return StepResult.from_dict(state.get("result"), type(config))
    except ValueError as problem:
        raise checkpoints.damaged(folder, problem) from None


class _Loop(Generic[S]):
    """A run in progress."""

    def __init__(
        self,
        config: S,
        build: Callable[[Session], StepTask],
        now: Session,
        progress: StepProgress,
        state: dict[str, Any] | None,
    ) -> None:
        self.config, self.now, self.progress = config, now, progress
        randomness.seed(config.seed)
        self.task = build(now)
        now.seed(config.seed)
        self.result = StepResult(config, started=datetime.now(timezone.utc).isoformat("T", "seconds"))
        if state is not None:
            self._restore(state)
        self.files = _Files(now.written, self.result)
        self.clock, self.saves = WorkClock(self.result.seconds), Saves(now, config.checkpoint_minutes)

    def go(self) -> StepResult[S]:
        """Train until the run finishes or fails."""
        self.progress.start(self.result)
        try:
            failure = agreed_ending(self.now.group, self._train, self._failure, lambda _: None)
            self.result.status, self.result.failure = "done" if failure is None else "failed", failure
        finally:
            self.result.seconds = self.clock.seconds
            try:
                self.files.close()
            finally:
                self.progress.stop(self.result)
        return self.result

    def _train(self) -> None:
        while self.result.step < self.config.steps:
            self._step(self.result.step)

    def _failure(self, problem: DivergedError) -> Failure:
        return Failure(self.result.step, None, problem.reason, problem.layer, problem.spectrum)

    def _step(self, number: int) -> None:
        watch = Stopwatch()
        values = self.task.step(number)
        stop, save = self.now.group.total([float(self.now.stop.wanted), float(self.saves.due)])
        self.result.step = number + 1
        logged = self._log(number, values)
        if self.now.group.is_leader:
            self.task.after(number)
        last = self.result.losses if logged else values
        self.progress.step(TakenStep(number + 1, self.config.steps, last, watch.lap(), logged))
        if stop or save or number + 1 == self.config.steps:
            self._save()
        if stop:
            self.now.raise_stopped()

    def _log(self, number: int, values: dict[str, float]) -> bool:
        """Add the values of a step; write their means if a line of the log is due."""
        self.result.means.add(values)
        due = (number + 1) % self.config.log_every == 0
        if due:
            self.result.losses, self.result.means = self.result.means.values, Means()
            self.files.log(number, self.result.losses)
        return due

    def _save(self) -> None:
        self.result.seconds = self.clock.seconds
        self.files.write()
        self.saves.save(lambda: {"result": self.result.to_dict(), **self.task.state()})

    def _restore(self, state: dict[str, Any]) -> None:
        known = _result_in(self.now.folder, state, self.config)
        try:
            self.task.restore(state)
            restore_random(state, self.now.group)
        except (ValueError, OverflowError, RuntimeError) as problem:
            raise checkpoints.damaged(self.now.folder, problem) from None
        self.result = replace(known, config=self.config, status="running", failure=None)


class _Files(Generic[S]):
    """Writes the files of a run; does nothing without a folder."""

    def __init__(self, folder: Path | None, result: StepResult[S]) -> None:
        self._folder, self._result, self._writer = folder, result, None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            begin_files(folder, result.config, self.write)
            self._rows = StepLog(folder / STEP_LOG, result.step)
            if result.config.tensorboard:
                self._writer = event_writer(folder, result.step)

    def write(self) -> None:
        """Write the result; flush the events, which a resumed run does not repeat."""
        if self._folder is not None:
            write_json(self._folder / RESULT, self._result.to_dict())
        if self._writer is not None:
            self._writer.flush()

    def log(self, step: int, values: dict[str, float]) -> None:
        """Write a line of the log, and TensorBoard scalars."""
        if self._folder is not None:
            self._rows.append([{"step": step, **values}])
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write the final result and close the files."""
        self.write()
        if self._writer is not None:
            self._writer.close()
