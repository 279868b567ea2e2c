"""One training run, from the beginning or from its checkpoint."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import torch
from torch import Tensor

from spectralgrad.io.files import naming

from .. import untrusted_json
from ..data import Dataset, as_dataset, fingerprint, load_for
from . import checkpoints, randomness
from .agreement import agreed_failure
from .components import build
from .conditioning import ConditionMonitor
from .config import Config
from .failures import DivergedError, FailureWatch, Patience
from .interrupts import Stop, Stopped, stoppable
from .locks import sole_writer
from .measurements import Measurements
from .process_group import Group, WorkerLostError, processes
from .progress import Progress, Silent, Step
from .records import Epoch, Failure, Result
from .resuming import earlier_run
from .run_files import RunFiles
from .saved_state import read_tally, read_tensor, reader_like
from .step_times import StepTimer
from .steps import Stepper, Stopwatch, batches
from .tally import Tally


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
        ConfigError: the configuration differs from that of the run in the folder, or does not fit the network.
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
    where = None if folder is None else Path(folder)
    dataset = None if data is None else as_dataset(data).smaller(config.train_size, config.test_size)
    if dataset is not None:
        config = config.replaced(dataset=fingerprint(dataset), data=None)
    state, threads = randomness.capture(), torch.get_num_threads()
    try:
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        with processes(config.device) as group, stoppable() as stop, naming(where), sole_writer(where, group):
            kept = earlier_run(config, where, resume)
            group.barrier()  # no process may write before all have read the folder
            if kept.result is not None:
                return kept.result
            shown = progress if progress is not None and group.is_leader else Silent()
            return _Run(config, dataset or load_for(config), where, group, stop, shown, kept.state).go()
    finally:
        torch.set_num_threads(threads)
        randomness.restore(state)


class _Run:
    """A run in progress."""

    def __init__(
        self,
        config: Config,
        data: Dataset,
        folder: Path | None,
        group: Group,
        stop: Stop,
        progress: Progress,
        state: dict[str, Any] | None,
    ) -> None:
        self.config, self.group, self.stop, self.progress = config, group, stop, progress
        self.folder = folder
        self.train, self.test = batches(config, data, group)
        randomness.seed(config.seed)
        self.components = build(config, self.train.shape, len(data.classes), group)
        randomness.seed(config.seed + 1_000_003 * group.rank)
        self.tally, self.result = Tally(), Result(config, started=datetime.now(timezone.utc).isoformat("T", "seconds"))
        if state is not None:
            self._restore(state)
        self.watch = FailureWatch(self.components.net)
        timer = StepTimer(self.components.net, group.device) if config.time_layers else None
        self.stepper = Stepper(config, self.components, self.watch, group, timer)
        self.patience = Patience(len(data.classes), config.patience)
        self.files = RunFiles(folder if group.is_leader else None, self.result, self.tally.step)
        self.monitor = ConditionMonitor(
            config, self.components, group, len(self.train), self.tally.step, self.files.writer
        )
        self.measurements = Measurements(config, self.stepper, timer, self.monitor, len(self.train), self.files)
        self._began, self._worked, self._saved = perf_counter(), self.result.seconds, monotonic()

    def go(self) -> Result:
        """Train until the run finishes or fails."""
        self.progress.start(self.result)
        try:
            failure, lost = self._ending()
            if failure is not None or lost is not None:
                self.components.leave(self.group)
                self.result.status, self.result.failure = "failed", agreed_failure(self.group, failure, lost)
            else:
                self.result.status = "done"
        finally:
            self._count_seconds()
            self._close()
        return self.result

    def _close(self) -> None:
        try:
            self.monitor.close()
            self.files.close()
        finally:
            self.progress.stop(self.result)

    def _ending(self) -> tuple[Failure | None, WorkerLostError | None]:
        """Train; returns what failed here, or that a process was lost. A traceback would keep tensors alive."""
        try:
            self._check_patience()
            while self.tally.epoch < self.config.epochs:
                self._train_epoch()
                self._end_epoch()
                self._check_patience()
        except DivergedError as problem:
            return Failure(self.tally.step, self.tally.epoch, problem.reason, problem.layer, problem.spectrum), None
        except RuntimeError as problem:
            if not self.group.is_lost_worker(problem):
                raise
            return None, WorkerLostError(self.group.rank, self.group.world, problem)
        return None, None

    def _train_epoch(self) -> None:
        tally, clock = self.tally, Stopwatch()
        self.components.net.train()
        for images, labels in self.train.epoch(tally.epoch, tally.batch):
            loading = clock.lap()
            self.measurements.before(tally.step, images, labels)
            clock.lap()
            counts = self.stepper(images, labels, stop=self.stop.wanted, save=self._save_is_due)
            working = clock.lap()
            tally.add(counts, loading + working, 1000 * working)
            self.monitor.record(tally)
            self.measurements.after(tally)
            self.progress.step(self._step())
            if counts.save or counts.stop:
                self._save()
            if counts.stop:
                self._raise_stopped()
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

    @property
    def _save_is_due(self) -> bool:
        if self.folder is None or not self.group.is_leader:
            return False
        return monotonic() - self._saved >= 60 * self.config.checkpoint_minutes

    def _save(self) -> None:
        """Collect the random states of all processes; the leading process writes the checkpoint."""
        if self.folder is None:
            return
        states = {name: self.group.gather(value) for name, value in randomness.capture().items()}
        self._count_seconds()
        if self.group.is_leader:
            self.files.flush()
            state = {
                "result": self.result.to_dict(),
                "tally": dataclasses.asdict(self.tally),
                "random": states,
                **self.components.state(),
            }
            checkpoints.save(self.folder, state)
        self._saved = monotonic()

    def _restore(self, state: dict[str, Any]) -> None:
        kinds = randomness.capture()
        required = {name: untrusted_json.list_of(reader_like(value)) for name, value in kinds.items() if name != "cuda"}
        random_states = untrusted_json.record(required, {"cuda": untrusted_json.list_of(read_tensor)})
        try:
            self.components.restore(state)
            saved = untrusted_json.record({"random": random_states, "tally": read_tally})(state, "state")
            known = Result.from_dict(state.get("result"))
            self.tally = Tally(**saved["tally"])
            if self.tally.epoch != len(known.epochs):
                raise untrusted_json.InvalidValueError(
                    f"state.tally.epoch: expected {len(known.epochs)}, got {self.tally.epoch}"
                )
            if self.group.rank < min(map(len, saved["random"].values())):
                randomness.restore({name: values[self.group.rank] for name, values in saved["random"].items()})
        except (ValueError, OverflowError, RuntimeError) as problem:
            raise checkpoints.damaged(self.folder, problem) from None
        self.result = dataclasses.replace(known, config=self.config, status="running", failure=None)

    def _interrupted(self) -> None:
        """Stop during a test, which a resumed run repeats. With several processes the test is finished first."""
        if self.stop.wanted and self.group.world == 1:
            self._save()
            self._raise_stopped()

    def _raise_stopped(self) -> None:
        raise Stopped(self.stop.signal or signal.SIGINT)

    def _count_seconds(self) -> None:
        self.result.seconds = self._worked + perf_counter() - self._began
