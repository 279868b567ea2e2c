"""Training steps and tests, over all processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from spectralgrad.training import renew_statistics

from ...data import Batches, Dataset
from ...data.augmentation import resolve
from ..config.run_config import Config
from ..processes.agreed_sums import agreed_sums
from ..processes.process_group import Group
from .components import Components
from .failures import NUMERICAL, DivergedError, FailureWatch
from .loss_step import descend
from .position import Counts
from .step_times import StepTimer

_FEW_CLASSES = 10  # top-5 errors are recorded for more classes than this
_SMALLEST_BATCH = 1 / 8  # of the batch size; a smaller last batch is dropped, since its statistics would be poor


def batches(config: Config, data: Dataset, group: Group) -> tuple[Batches, Batches]:
    """Batches of training and of test images. Tests use the deterministic counterpart of the augmentation."""
    how = resolve(config.augmentation or data.augmentation)
    rest = len(data.train) % config.batch_size
    common: dict[str, Any] = {"mean": data.mean, "std": data.std, "seed": config.seed}
    common |= {"rank": group.rank, "world": group.world, "workers": config.workers}
    poor = rest < _SMALLEST_BATCH * config.batch_size and len(data.train) >= config.batch_size
    train = Batches(data.train, config.batch_size, augmentation=how, drop_last=poor, **common)
    size = max(config.batch_size, group.world)
    return train, Batches(data.test, size, augmentation=how.evaluation, shuffle=False, drop_last=False, **common)


class Stepper:
    """Takes training steps.

    Args:
        config: of the run.
        components: of the run.
        watch: attached to the network.
        group: the processes that train together.
        timer: times forward and backward passes (default: none are timed).
    """

    def __init__(
        self,
        config: Config,
        components: Components,
        watch: FailureWatch,
        group: Group,
        timer: StepTimer | None = None,
    ) -> None:
        self.config, self.components, self.watch, self.group, self._timer = config, components, watch, group, timer
        self._trained = [p for p in components.net.parameters() if p.requires_grad]

    def forward(self, model: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """Class scores in float32, computed in the precision of the run."""
        half = self.config.precision == "bfloat16"
        with torch.autocast(self.group.device.type, torch.bfloat16, enabled=half):
            scores = model(images)
        return scores.float()

    def __call__(self, images: Tensor, labels: Tensor, *, stop: bool = False, save: bool = False) -> Counts:
        """Take one step.

        Before the backward pass all processes exchange their counts, so that the loss is the mean over all images,
        however they are divided among the processes.

        Raises:
            DivergedError: the step failed in this process; other processes may still be in it.
        """
        images, labels = images.to(self.group.device), labels.to(self.group.device)
        trouble, loss, wrong = self._loss(images, labels)
        here = [stop, save, len(labels), math.nan if loss is None else float(loss.detach()), wrong]
        counts = Counts(*agreed_sums(self.group, trouble, [float(value) for value in here]))
        assert loss is not None
        if not math.isfinite(counts.loss):
            raise self.watch.explain_loss(lambda: self.forward(self.components.net, images))
        self._learn(loss * (self.group.world / counts.images))
        return counts

    def _loss(self, images: Tensor, labels: Tensor) -> tuple[DivergedError | None, Tensor | None, float]:
        """The summed loss and the number of misclassified images, or the failure."""
        try:
            with self._timed("forward_ms"):
                scores = self.forward(self.components.model, images)
        except NUMERICAL as problem:
            return self.watch.explain_error(problem), None, 0.0
        wrong = float((scores.detach().argmax(1) != labels).sum())
        return None, functional.cross_entropy(scores, labels, reduction="sum"), wrong

    def _learn(self, loss: Tensor) -> None:
        if self.components.penalty is not None:
            loss = loss + self.components.penalty()
        timing = self._timed("backward_ms")
        optimizer = self.components.optimizer
        descend(loss, optimizer, self._trained, self.watch, clip=self.config.clip, timing=timing)

    def _timed(self, name: str) -> AbstractContextManager[None]:
        return nullcontext() if self._timer is None else self._timer.timing(name)

    @torch.no_grad()
    def evaluate(
        self,
        test: Batches,
        renewing: Iterable[tuple[Tensor, Tensor]],
        interrupted: Callable[[], None] = lambda: None,
    ) -> Scores:
        """Mean loss and errors over the test images.

        Args:
            test: batches of test images.
            renewing: training batches over which running statistics are recomputed first, if the configuration asks for
                it.
            interrupted: called before every batch; may raise.

        Raises:
            DivergedError: a layer cannot be evaluated, or the loss is not finite.
        """
        sums, trouble = [0.0] * 4, None
        try:
            self._renew(renewing, interrupted)
            self.components.net.eval()
            for images, labels in test.epoch(0):
                interrupted()
                here = self._tested(images.to(self.group.device), labels)
                sums = [a + b for a, b in zip(sums, here, strict=True)]
        except NUMERICAL as problem:
            trouble = self.watch.explain_error(problem)
        except DivergedError as problem:
            trouble = problem
        if trouble is not None:
            trouble.reason = f"in evaluation: {trouble.reason}"
        loss, wrong, missed, count = agreed_sums(self.group, trouble, sums)
        top5 = None if math.isnan(missed) else 100 * missed / count
        return Scores(loss / count, 100 * wrong / count, top5)

    def _tested(self, images: Tensor, labels: Tensor) -> list[float]:
        """The counts of a batch, if its loss is finite."""
        counts = _test_counts(self.forward(self.components.net, images).cpu(), labels)
        if not math.isfinite(counts[0]):
            raise self.watch.explain_loss(lambda: self.forward(self.components.net, images))
        return counts

    def _renew(self, batches: Iterable[tuple[Tensor, Tensor]], interrupted: Callable[[], None]) -> None:
        def forward(images: Tensor) -> None:
            interrupted()
            self.forward(self.components.net, images.to(self.group.device))

        if self.config.renew_batches:
            renew_statistics(self.components.net, batches, forward)


class Scores(NamedTuple):
    """The outcome of a test: mean loss and errors in per cent; ``top5`` is None for ten classes or fewer.

    Example:
        >>> Scores(0.5, 20.0, None).error
        20.0
    """

    loss: float
    error: float
    top5: float | None


def _test_counts(scores: Tensor, labels: Tensor) -> list[float]:
    """Summed loss, misclassified images, images whose class is not among the five best, all images."""
    loss = float(functional.cross_entropy(scores, labels, reduction="sum"))
    wrong = float((scores.argmax(1) != labels).sum())
    missed = math.nan
    if scores.shape[1] > _FEW_CLASSES:
        missed = float((scores.topk(5).indices != labels[:, None]).all(1).sum())
    return [loss, wrong, missed, float(len(labels))]


class Stopwatch:
    """Measures the seconds since the last call of :meth:`lap`.

    Example:
        >>> watch = Stopwatch()
        >>> watch.lap() < 1
        True
    """

    def __init__(self) -> None:
        self._last = perf_counter()

    def lap(self) -> float:
        now = perf_counter()
        passed, self._last = now - self._last, now
        return passed
