"""One training run from beginning to end, or from its checkpoint on."""

from __future__ import annotations

import dataclasses
import json
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
from .components import build
from .conditioning import Looks
from .config import Config
from .failures import DivergedError, Patience, Watch
from .interrupts import Stop, Stopped, stoppable
from .locks import sole_writer
from .process_group import Group, WorkerLostError, processes
from .progress import Progress, Silent, Step
from .records import Epoch, Failure, Result, packed
from .resuming import previous
from .run_files import Files
from .saved_state import like, tally, tensor
from .steps import Stepper, Stopwatch, Tally, batches


def train(
    config: Config,
    folder: str | Path | None = None,
    *,
    data: Any = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Train a network as a configuration says.

    Under torchrun, or in a process group of the caller, all processes train one network; rank 0 writes. A run that
    diverges is a result with status ``"failed"``, not an exception. Ctrl-C and SIGTERM wait for the end of the step and
    for a checkpoint. Random states and the number of threads are put back afterwards.

    Args:
        config: what to do.
        folder: gets config.toml, result.json, log.csv, a checkpoint, and TensorBoard events; None keeps nothing. With
            several machines it has to be on a disk that all of them see.
        data: images to use in place of ``config.dataset``: a :class:`~spectralgrad_lab.data.Dataset`, or a pair of
            training and test images, see :func:`~spectralgrad_lab.data.as_dataset`. The result's configuration has
            their name and a digest of them as ``dataset``; to resume, pass them again.
        resume: go on from the checkpoint in the folder, if there is one, to the numbers of a run that was never
            interrupted. A finished or failed run is returned as it is, unless ``config`` has more epochs.
        progress: is told how it goes; by default nobody is.

    Returns:
        the result.

    Raises:
        ConfigError: the configuration is not that of the run in the folder, or makes no sense for the network.
        DataError: the images are missing or damaged.
        RunBusyError: another process is writing into the folder.
        RunExistsError: the folder holds a run and ``resume`` is false.
        CheckpointError: its checkpoint is damaged.
        OSError: a file could not be written; the last checkpoint still counts.
        Stopped: somebody asked to stop; the checkpoint is written.
        WorkerLostError: another process went away.
        SpectralError: a run in the caller's process group has failed before.

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
            kept = previous(config, where, resume)
            group.wait()  # nobody writes before all have looked
            if kept.result is not None:
                return kept.result
            told = progress if progress is not None and group.leads else Silent()
            return _Run(config, dataset or load_for(config), where, group, stop, told, kept.state).go()
    finally:
        torch.set_num_threads(threads)
        randomness.restore(state)


class _Run:
    """The parts of a run, and where it is."""

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
        self.parts = build(config, self.train.shape, len(data.classes), group)
        randomness.seed(config.seed + 1_000_003 * group.rank)
        self.tally, self.result = Tally(), Result(config, started=datetime.now(timezone.utc).isoformat("T", "seconds"))
        if state is not None:
            self._restore(state)
        self.watch = Watch(self.parts.net)
        self.stepper = Stepper(config, self.parts, self.watch, group)
        self.patience = Patience(len(data.classes), config.patience)
        self.files = Files(folder if group.leads else None, self.result, self.tally.step)
        self.looks = Looks(config, self.parts, group, len(self.train), self.tally.step, self.files.writer)
        self._began, self._worked, self._saved = perf_counter(), self.result.seconds, monotonic()

    def go(self) -> Result:
        """Train to the end, whatever end it is."""
        self.progress.start(self.result)
        try:
            failure, lost = self._ending()
            if failure is not None or lost is not None:
                self.parts.leave(self.group)
                self.result.status, self.result.failure = "failed", self._agreed(failure, lost)
            else:
                self.result.status = "done"
        finally:
            self._count_seconds()
            self._close()
        return self.result

    def _close(self) -> None:
        try:
            self.looks.close()
            self.files.close()
        finally:
            self.progress.stop(self.result)

    def _ending(self) -> tuple[Failure | None, WorkerLostError | None]:
        """Train; what failed here, or that another process does not answer. No error is kept, nor what it refers to."""
        try:
            self._check_patience()
            while self.tally.epoch < self.config.epochs:
                self._train_epoch()
                self._end_epoch()
                self._check_patience()
        except DivergedError as problem:
            return Failure(self.tally.step, self.tally.epoch, problem.reason, problem.layer, problem.spectrum), None
        except RuntimeError as problem:
            if not self.group.lost(problem):
                raise
            return None, WorkerLostError(self.group.rank, self.group.world, problem)
        return None, None

    def _train_epoch(self) -> None:
        tally, clock = self.tally, Stopwatch()
        self.parts.net.train()
        for images, labels in self.train.epoch(tally.epoch, tally.batch):
            loading = clock.lap()
            counts = self.stepper(images, labels, stop=self.stop.wanted, save=self._save_is_due)
            working = clock.lap()
            tally.add(counts, loading + working, 1000 * working)
            self.looks.take(tally)
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
            lr=float(self.parts.optimizer.param_groups[0]["lr"]),
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
            method=self.parts.method,
        )
        self.result.epochs.append(epoch)
        self.parts.advance()
        self.tally = Tally(epoch=tally.epoch + 1, step=tally.step)
        self.files.write(self.tally.step - 1)  # what a resumed run discards begins at the step of its checkpoint
        self._save()
        self.progress.epoch(epoch)

    def _check_patience(self) -> None:
        """After every epoch, and before the first of a resumed run, which may have been killed in between."""
        if self.tally.batch == 0 and self.patience.lost(self.result.epochs, self.tally.step):
            layer = next(iter(self.parts.spectral), None)
            raise DivergedError(self.patience.reason, layer, self.watch.spectrum(layer))

    def _renewing(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches over which running statistics are averaged before the test."""
        return islice(self.train.epoch(self.tally.epoch), self.config.renew_batches)

    def _step(self) -> Step:
        tally = self.tally
        last = float(tally.looks[-1][0]) if tally.looks else float("nan")
        return Step(tally.epoch, tally.batch, len(self.train), tally.mean_loss, tally.error, tally.rate, last)

    @property
    def _save_is_due(self) -> bool:
        if self.folder is None or not self.group.leads:
            return False
        return monotonic() - self._saved >= 60 * self.config.checkpoint_minutes

    def _save(self) -> None:
        """All processes tell their random states; the first writes."""
        if self.folder is None:
            return
        states = {name: self.group.gather(value) for name, value in randomness.capture().items()}
        self._count_seconds()
        if self.group.leads:
            self.files.flush()
            state = {
                "result": self.result.to_dict(),
                "tally": dataclasses.asdict(self.tally),
                "random": states,
                **self.parts.state(),
            }
            checkpoints.save(self.folder, state)
        self._saved = monotonic()

    def _restore(self, state: dict[str, Any]) -> None:
        kinds = randomness.capture()
        required = {name: untrusted_json.series(like(value)) for name, value in kinds.items() if name != "cuda"}
        shared = {"random": untrusted_json.record(required, {"cuda": untrusted_json.series(tensor)}), "tally": tally}
        try:
            self.parts.restore(state)
            saved = untrusted_json.record(shared)(state, "state")
            known = Result.from_dict(state.get("result"))
            self.tally = Tally(**saved["tally"])
            if self.tally.epoch != len(known.epochs):
                raise untrusted_json.RowError(
                    f"state.tally.epoch: expected {len(known.epochs)}, got {self.tally.epoch}"
                )
            if self.group.rank < min(map(len, saved["random"].values())):
                randomness.restore({name: values[self.group.rank] for name, values in saved["random"].items()})
        except (ValueError, OverflowError, RuntimeError) as problem:
            raise checkpoints.damaged(self.folder, problem) from None
        self.result = dataclasses.replace(known, config=self.config, status="running", failure=None)

    def _interrupted(self) -> None:
        """A test can be left: the next one renews the statistics again. With several processes it is finished first."""
        if self.stop.wanted and self.group.world == 1:
            self._save()
            self._raise_stopped()

    def _raise_stopped(self) -> None:
        raise Stopped(self.stop.signal or signal.SIGINT)

    def _agreed(self, here: Failure | None, lost: WorkerLostError | None) -> Failure:
        """The failure that a process found, one that can name a layer first.

        Raises:
            WorkerLostError: none did; or one has gone, unless this process leads and has failed itself.
        """
        if self.group.world == 1 and here is not None:
            return here
        try:
            notes = self.group.notes(json.dumps(packed(dataclasses.asdict(here))) if here and here.reason else "")
        except RuntimeError as problem:
            if here is not None and self.group.leads and self.group.lost(problem):
                return here
            raise (lost or problem) from None
        found = sorted((json.loads(note) for note in notes if note), key=lambda note: note["layer"] is None)
        if not found:
            raise lost or WorkerLostError(self.group.rank, self.group.world, RuntimeError("no process says why"))
        return Failure.from_dict(found[0])

    def _count_seconds(self) -> None:
        self.result.seconds = self._worked + perf_counter() - self._began
