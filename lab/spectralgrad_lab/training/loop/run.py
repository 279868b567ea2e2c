"""One training run, from the beginning or from its checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor

from ... import untrusted_json
from ...data import Dataset, as_dataset, fingerprint, load_for
from ..config.run_config import Config
from ..processes.agreed_sums import agreed_ending
from ..processes.surroundings import Session, SolverFailures, WorkClock, session
from ..storage import checkpoints, randomness
from ..storage.checkpoint_times import Saves, restore_random
from ..storage.records import Epoch, Failure, Result
from ..storage.resuming import earlier_run
from ..storage.run_files import RunFiles
from ..storage.saved_state import read_tally
from .components import build
from .conditioning import ConditionMonitor
from .failures import DivergedError, FailureWatch, Patience
from .measurements import Measurements
from .position import Tally
from .progress import Progress, Silent, Step
from .step_times import StepTimer
from .steps import Stepper, Stopwatch, batches


def train(
    config: Config,
    folder: str | Path | None = None,
    *,
    data: Any = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Train a network.

    Under torchrun, or in a process group of the caller, all processes train one network and rank 0 writes the files. A
    run that diverges returns a result with status ``"failed"``; it raises no exception. Ctrl-C and SIGTERM take effect
    at the end of the step, after a checkpoint. Random states and the number of threads are restored afterwards.

    Args:
        config: of the run.
        folder: receives config.toml, result.json, log.csv, a checkpoint and TensorBoard events; None writes nothing.
            With several machines it must be on a shared disk.
        data: images to use in place of ``config.dataset``: a :class:`~spectralgrad_lab.data.Dataset`, or a pair of
            training and test images, see :func:`~spectralgrad_lab.data.as_dataset`. The configuration in the result has
            their name and a digest as ``dataset``; to resume, pass the same data again.
        resume: continue from the checkpoint in the folder, if there is one, with the same results as a run without
            interruption. A finished or failed run is returned as it is, unless ``config`` has more epochs.
        progress: progress callbacks (default: none).

    Returns:
        the result.

    Raises:
        ConfigError: the configuration differs from the one of the run in the folder, or does not fit the network.
        DataError: the images are missing or damaged.
        RunBusyError: another process is writing to the folder.
        RunExistsError: the folder contains a run and ``resume`` is false.
        CheckpointError: the checkpoint is damaged.
        OSError: a file could not be written; the last checkpoint is still valid.
        Stopped: a signal stopped the run; the checkpoint was written.
        WorkerLostError: another process died.
        SpectralError: an earlier run in the caller's process group failed.

    Example:
        >>> config = Config(train_size=128, batch_size=32, epochs=1, monitor_every=2)
        >>> result = train(config)
        >>> result.status, len(result.epochs), result.final_error <= 100
        ('done', 1, True)
    """
    dataset = None if data is None else as_dataset(data).smaller(config.train_size, config.test_size)
    if dataset is not None:
        config = config.replaced(dataset=fingerprint(dataset), data=None)
    with session(folder, device=config.device, threads=config.threads) as now:
        kept = earlier_run(config, now.folder, resume)
        now.group.barrier()  # no process may write before all have read the folder
        if kept.result is not None:
            return kept.result
        shown = progress if progress is not None and now.group.is_leader else Silent()
        return _Run(config, dataset or load_for(config), now, shown, kept.state).go()


class _Run:
    """A run in progress."""

    def __init__(
        self, config: Config, data: Dataset, now: Session, progress: Progress, state: dict[str, Any] | None
    ) -> None:
        self.config, self.now, self.group, self.progress = config, now, now.group, progress
        self.train, self.test = batches(config, data, now.group)
        randomness.seed(config.seed)
        self.components = build(config, self.train.shape, len(data.classes), now.group)
        now.seed(config.seed)
        self.tally, self.result = Tally(), Result(config, started=datetime.now(timezone.utc).isoformat("T", "seconds"))
        if state is not None:
            self._restore(state)
        self.watch = FailureWatch(self.components.net)
        timer = StepTimer(self.components.net, now.group.device) if config.time_layers else None
        self.stepper = Stepper(config, self.components, self.watch, now.group, timer)
        self.patience = Patience(len(data.classes), config.patience)
        self.files = RunFiles(now.written, self.result, self.tally.step)
        self.monitor = ConditionMonitor(
            config, self.components, now.group, len(self.train), self.tally.step, self.files.writer
        )
        self.measurements = Measurements(config, self.stepper, timer, self.monitor, len(self.train), self.files)
        self.clock, self.saves = WorkClock(self.result.seconds), Saves(now, config.checkpoint_minutes)
        self.solver_failures = SolverFailures(self.result.solver_failures)

    def go(self) -> Result:
        """Train until the run finishes or fails."""
        self.progress.start(self.result)
        try:
            failure = agreed_ending(self.group, self._train, self._failure, self.components.leave)
            self.result.status, self.result.failure = "done" if failure is None else "failed", failure
        finally:
            self._count()
            self._close()
        return self.result

    def _close(self) -> None:
        try:
            self.monitor.close()
            self.files.close()
        finally:
            self.progress.stop(self.result)

    def _train(self) -> None:
        self._check_patience()
        while self.tally.epoch < self.config.epochs:
            self._train_epoch()
            self._end_epoch()
            self._check_patience()

    def _failure(self, problem: DivergedError) -> Failure:
        return Failure(self.tally.step, self.tally.epoch, problem.reason, problem.layer, problem.spectrum)

    def _train_epoch(self) -> None:
        tally, clock = self.tally, Stopwatch()
        self.components.net.train()
        for images, labels in self.train.epoch(tally.epoch, tally.batch):
            loading = clock.lap()
            self.measurements.before(tally.step, images, labels)
            clock.lap()
            counts = self.stepper(images, labels, stop=self.now.stop.wanted, save=self.saves.due)
            working = clock.lap()
            tally.add(counts, loading + working, 1000 * working)
            self.monitor.record(tally)
            self.measurements.after(tally)
            self.progress.step(self._step())
            if counts.save or counts.stop:
                self._save()
            if counts.stop:
                self.now.raise_stopped()
            clock.lap()

    def _end_epoch(self) -> None:
        clock, tally = Stopwatch(), self.tally
        test = self.stepper.evaluate(self.test, self._renewing(), self._interrupted)
        epoch = Epoch(
            epoch=tally.epoch,
            lr=float(self.components.optimizer.param_groups[0]["lr"]),
            train_loss=tally.mean_loss,
            train_error=tally.error,
            test_loss=test.loss,
            test_error=test.error,
            test_top5=test.top5,
            seconds=tally.seconds + clock.lap(),
            images_per_second=tally.rate,
            step_ms=tally.step_ms,
            condition=tally.condition,
            rank=tally.rank,
            method=self.components.method,
            measured=tally.summaries,
        )
        self.result.epochs.append(epoch)
        self.components.advance()
        self.tally = Tally(epoch=tally.epoch + 1, step=tally.step)
        self.files.write(self.tally.step - 1)  # a resumed run discards TensorBoard events from its checkpoint's step on
        self._save()
        self.progress.epoch(epoch)

    def _check_patience(self) -> None:
        """Called after every epoch and when a run starts: a resumed run may have been killed before the check."""
        if self.tally.batch == 0 and self.patience.exhausted(self.result.epochs, self.tally.step):
            layer = next(iter(self.components.spectral), None)
            raise DivergedError(self.patience.reason, layer, self.watch.spectrum(layer))

    def _renewing(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches over which running statistics are recomputed before the test."""
        return islice(self.train.epoch(self.tally.epoch), self.config.renew_batches)

    def _step(self) -> Step:
        tally = self.tally
        last = float(tally.looks[-1][0]) if tally.looks else float("nan")
        return Step(tally.epoch, tally.batch, len(self.train), tally.mean_loss, tally.error, tally.rate, last)

    def _save(self) -> None:
        self._count()
        self.saves.save(self._state)

    def _count(self) -> None:
        self.result.seconds, self.result.solver_failures = self.clock.seconds, self.solver_failures.number

    def _state(self) -> dict[str, Any]:
        self.files.flush()
        return {"result": self.result.to_dict(), "tally": dataclasses.asdict(self.tally), **self.components.state()}

    def _restore(self, state: dict[str, Any]) -> None:
        try:
            self.components.restore(state)
            saved = untrusted_json.record({"tally": read_tally})(state, "state")
            known = Result.from_dict(state.get("result"))
            self.tally = Tally(**saved["tally"])
            if self.tally.epoch != len(known.epochs):
                raise untrusted_json.InvalidValueError(
                    f"state.tally.epoch: expected {len(known.epochs)}, got {self.tally.epoch}"
                )
            restore_random(state, self.group)
        except (ValueError, OverflowError, RuntimeError) as problem:
            raise checkpoints.damaged(self.now.folder, problem) from None
        self.result = dataclasses.replace(known, config=self.config, status="running", failure=None)

    def _interrupted(self) -> None:
        """Stop during a test, which a resumed run repeats. With several processes the test is finished first."""
        if self.now.stop.wanted and self.group.world == 1:
            self._save()
            self.now.raise_stopped()
