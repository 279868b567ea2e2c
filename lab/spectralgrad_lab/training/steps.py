"""Training steps and tests: what they count, and what all processes learn of each other on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from spectralgrad.training import renew_statistics

from ..data import Batches, Dataset
from ..data.augmentation import resolve
from .components import Parts
from .config import Config
from .failures import NUMERICAL, DivergedError, Watch, finite
from .process_group import Group

_MANY_CLASSES = 100  # from here on top-5 errors are told
_SMALLEST_BATCH = 1 / 8  # of the others; a smaller last one is left out, since its statistics would be poor


class Counts(NamedTuple):
    """A step, summed over the processes: who asks to stop or to save, images, their losses, and wrong answers."""

    stop: float
    save: float
    images: float
    loss: float
    wrong: float


@dataclass
class Tally:
    """Where a run is, and what it has counted in this epoch. Plain values, so that a checkpoint holds them.

    Attributes:
        epoch: that is being trained.
        batch: of the epoch, the next.
        step: training steps taken.
        images: seen in this epoch.
        loss: summed over them.
        wrong: how many were misclassified.
        seconds: spent training in this epoch.
        times: milliseconds of each step.
        looks: condition number and rank, each time somebody looked.

    Example:
        >>> tally = Tally()
        >>> tally.add(Counts(0, 0, 128, 256.0, 64), seconds=0.5, milliseconds=400.0)
        >>> tally.mean_loss, tally.error, tally.rate
        (2.0, 50.0, 256.0)
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    images: float = 0.0
    loss: float = 0.0
    wrong: float = 0.0
    seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    looks: list[list[Any]] = field(default_factory=list)

    def add(self, counts: Counts, seconds: float, milliseconds: float) -> None:
        """Count a step."""
        self.batch += 1
        self.step += 1
        self.images += counts.images
        self.loss += counts.loss
        self.wrong += counts.wrong
        self.seconds += seconds
        self.times.append(milliseconds)

    @property
    def mean_loss(self) -> float:
        return self.loss / self.images if self.images else math.nan

    @property
    def error(self) -> float:
        """In per cent."""
        return 100 * self.wrong / self.images if self.images else math.nan

    @property
    def rate(self) -> float:
        """Images a second."""
        return self.images / self.seconds if self.seconds else math.nan

    @property
    def step_ms(self) -> float:
        return median(self.times) if self.times else math.nan

    @property
    def condition(self) -> float:
        return median(float(look[0]) for look in self.looks) if self.looks else math.nan

    @property
    def rank(self) -> int:
        return min((int(look[1]) for look in self.looks), default=0)


def batches(config: Config, data: Dataset, group: Group) -> tuple[Batches, Batches]:
    """Of training and test images. Evaluation uses the counterpart of the augmentation without chance."""
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
        parts: what learns.
        watch: on its spectral layers.
        group: the processes.
    """

    def __init__(self, config: Config, parts: Parts, watch: Watch, group: Group) -> None:
        self.config, self.parts, self.watch, self.group = config, parts, watch, group
        self._trained = [p for p in parts.net.parameters() if p.requires_grad]

    def forward(self, model: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """Class scores in float32, computed in the precision of the run."""
        half = self.config.precision == "bfloat16"
        with torch.autocast(self.group.device.type, torch.bfloat16, enabled=half):
            scores = model(images)
        return scores.float()

    def __call__(self, images: Tensor, labels: Tensor, *, stop: bool = False, save: bool = False) -> Counts:
        """One step.

        Before the backward pass all processes tell each other how theirs went: the loss is the mean over all
        images, however they are shared.

        Raises:
            DivergedError: the step cannot be taken; the others may still be in it.
        """
        images, labels = images.to(self.group.device), labels.to(self.group.device)
        trouble, loss, wrong = self._loss(images, labels)
        here = [stop, save, len(labels), math.nan if loss is None else float(loss.detach()), wrong]
        counts = Counts(*self._agreed(trouble, [float(value) for value in here]))
        assert loss is not None
        if not math.isfinite(counts.loss):
            raise self.watch.of_loss(lambda: self.forward(self.parts.net, images))
        self._learn(loss * (self.group.world / counts.images))
        return counts

    def _agreed(self, trouble: DivergedError | None, here: list[float]) -> list[float]:
        """Sums over all processes, if none is in trouble.

        With connections of its own a run is left at once, since the others may be waiting within a layer. Without
        them, on GPUs, trouble can be told only here, and the layers must not wait for each other after it.
        """
        if trouble is not None and self.group.line is not None:
            raise trouble
        failed, *sums = self.group.total([float(trouble is not None), *here])
        if failed:
            raise trouble or DivergedError("")
        return sums

    def _loss(self, images: Tensor, labels: Tensor) -> tuple[DivergedError | None, Tensor | None, float]:
        """The summed loss and the number of wrong answers, or what went wrong."""
        try:
            scores = self.forward(self.parts.model, images)
        except NUMERICAL as problem:
            return self.watch.of_error(problem), None, 0.0
        wrong = float((scores.detach().argmax(1) != labels).sum())
        return None, functional.cross_entropy(scores, labels, reduction="sum"), wrong

    def _learn(self, loss: Tensor) -> None:
        if self.parts.penalty is not None:
            loss = loss + self.parts.penalty()
        self.parts.optimizer.zero_grad(set_to_none=True)
        try:
            loss.backward()  # type: ignore[no-untyped-call]
        except NUMERICAL as problem:
            raise self.watch.of_error(problem) from None
        norm = finite(p.grad for p in self._trained)
        if not bool(torch.isfinite(norm)):
            raise self.watch.of_gradient()
        if self.config.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self._trained, self.config.clip, norm)
        self.parts.optimizer.step()

    @torch.no_grad()
    def evaluate(
        self,
        test: Batches,
        renewing: Iterable[tuple[Tensor, Tensor]],
        interrupted: Callable[[], None] = lambda: None,
    ) -> Scores:
        """Mean loss and errors over the test images.

        Args:
            test: the images.
            renewing: training batches over which running statistics are averaged first, if the run has that.
            interrupted: called before every batch; may raise.

        Raises:
            DivergedError: a layer cannot be evaluated, or the loss is not finite.
        """
        sums, trouble = [0.0] * 4, None
        try:
            self._renew(renewing, interrupted)
            self.parts.net.eval()
            for images, labels in test.epoch(0):
                interrupted()
                here = self._tested(images.to(self.group.device), labels)
                sums = [a + b for a, b in zip(sums, here, strict=True)]
        except NUMERICAL as problem:
            trouble = self.watch.of_error(problem)
        except DivergedError as problem:
            trouble = problem
        if trouble is not None:
            trouble.reason = f"in evaluation: {trouble.reason}"
        loss, wrong, missed, count = self._agreed(trouble, sums)
        top5 = None if math.isnan(missed) else 100 * missed / count
        return Scores(loss / count, 100 * wrong / count, top5)

    def _tested(self, images: Tensor, labels: Tensor) -> list[float]:
        """The counts of a batch, if its loss is finite."""
        counts = _scored(self.forward(self.parts.net, images).cpu(), labels)
        if not math.isfinite(counts[0]):
            raise self.watch.of_loss(lambda: self.forward(self.parts.net, images))
        return counts

    def _renew(self, batches: Iterable[tuple[Tensor, Tensor]], interrupted: Callable[[], None]) -> None:
        def forward(images: Tensor) -> None:
            interrupted()
            self.forward(self.parts.net, images.to(self.group.device))

        if self.config.renew_batches:
            renew_statistics(self.parts.net, batches, forward)


class Scores(NamedTuple):
    """Of a test: mean loss, errors in per cent; ``top5`` is None below 100 classes.

    Example:
        >>> Scores(0.5, 20.0, None).error
        20.0
    """

    loss: float
    error: float
    top5: float | None


def _scored(scores: Tensor, labels: Tensor) -> list[float]:
    """Summed loss, how many are wrong, and not among the best five, and how many there are."""
    loss = float(functional.cross_entropy(scores, labels, reduction="sum"))
    wrong = float((scores.argmax(1) != labels).sum())
    missed = math.nan
    if scores.shape[1] >= _MANY_CLASSES:
        missed = float((scores.topk(5).indices != labels[:, None]).all(1).sum())
    return [loss, wrong, missed, float(len(labels))]


class Stopwatch:
    """Seconds since it was last asked.

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
