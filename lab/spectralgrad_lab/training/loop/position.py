"""The position of a run, and what it counts in the current epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

_WORST: dict[str, Callable[[list[float]], float]] = {"ties": max, "smallest_gap": min}
"""How to summarize what matters even if it happens in a single step."""


class Counts(NamedTuple):
    """Counts of a step, summed over processes: requests to stop or save, images, their loss, misclassified images."""

    stop: float
    save: float
    images: float
    loss: float
    wrong: float


@dataclass
class Tally:
    """The position of a run and its counts in the current epoch; plain values, so that a checkpoint can store them.

    Attributes:
        epoch: the current epoch.
        batch: the next batch of the epoch.
        step: training steps taken.
        images: seen in this epoch.
        loss: summed over these images.
        wrong: misclassified images.
        seconds: spent training in this epoch.
        times: milliseconds of each step.
        looks: records of condition number and rank.
        measured: what the run measures on request, by name.

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
    measured: dict[str, list[float]] = field(default_factory=dict)

    def add(self, counts: Counts, seconds: float, milliseconds: float) -> None:
        """Count a step."""
        self.batch += 1
        self.step += 1
        self.images += counts.images
        self.loss += counts.loss
        self.wrong += counts.wrong
        self.seconds += seconds
        self.times.append(milliseconds)

    def measure(self, values: Mapping[str, float]) -> None:
        """Add measured values; see :attr:`summaries`."""
        for name, value in values.items():
            self.measured.setdefault(name, []).append(value)

    @property
    def summaries(self) -> dict[str, float]:
        """What was measured in this epoch, by name: the median, or the worst value of ties and gaps."""
        return {name: float(_WORST.get(name, median)(values)) for name, values in self.measured.items() if values}

    @property
    def mean_loss(self) -> float:
        return self.loss / self.images if self.images else math.nan

    @property
    def error(self) -> float:
        """In per cent."""
        return 100 * self.wrong / self.images if self.images else math.nan

    @property
    def rate(self) -> float:
        """Images per second."""
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
