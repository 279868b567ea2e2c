"""Looks at the spectral layers of a run: condition numbers and ranks, the worst of all layers and processes."""

from __future__ import annotations

import math
from typing import Any

from spectralgrad.diagnostics import Monitor

from .components import Parts
from .config import Config
from .process_group import Group
from .steps import Tally


class Looks:
    """Watches a network with a :class:`~spectralgrad.diagnostics.Monitor`, if the run asks for it.

    Args:
        config: of the run.
        parts: what learns.
        group: the processes.
        batches: in an epoch, in which it looks once at least.
        start: the step at which the run begins, or goes on.
        writer: of TensorBoard, or None.
    """

    def __init__(self, config: Config, parts: Parts, group: Group, batches: int, start: int, writer: Any) -> None:
        self._count, self._group = len(parts.spectral), group
        self._monitor: Monitor | None = None
        if config.monitor_every and parts.spectral:
            every = min(config.monitor_every, batches)
            self._monitor = Monitor(parts.net, every, start=start, tensorboard=writer)

    def take(self, tally: Tally) -> None:
        """Take over what the monitors of all processes saw in this step, if they saw any."""
        step = tally.step - 1
        if self._monitor is None or step % self._monitor.every:
            return
        newest = self._monitor.records[-self._count :]
        seen = [r for r in newest if r.step == step and not math.isnan(r.condition)]
        nothing = -math.inf
        condition, rank = self._group.most(
            [max((r.condition for r in seen), default=nothing), max((-r.rank for r in seen), default=nothing)]
        )
        if condition > nothing:
            tally.looks.append([condition, int(-rank)])

    def close(self) -> None:
        """Look no more."""
        if self._monitor is not None:
            self._monitor.close()
