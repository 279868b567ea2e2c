"""Record condition numbers and ranks of the spectral layers of a run: the worst over all layers and processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from spectralgrad.diagnostics import Monitor, effective_smoothness

from ..config.run_config import Config
from ..processes.process_group import Group
from .components import Components
from .position import Tally


class ConditionMonitor:
    """Attach a :class:`~spectralgrad.diagnostics.Monitor` to the network if ``config.monitor_every`` is not 0.

    Args:
        config: of the run.
        components: of the run.
        group: the processes that train together.
        batches: number of batches per epoch; there is at least one record per epoch.
        start: the step at which the run starts or resumes.
        writer: a TensorBoard writer, or None.
    """

    def __init__(
        self, config: Config, components: Components, group: Group, batches: int, start: int, writer: Any
    ) -> None:
        self._count, self._group, self._net = len(components.spectral), group, components.net
        self._monitor: Monitor | None = None
        if config.monitor_every and components.spectral:
            every = min(config.monitor_every, batches)
            self._monitor = Monitor(components.net, every, start=start, tensorboard=writer)

    def record(self, tally: Tally) -> None:
        """Add what the monitors of all processes recorded in this step, if anything, to the tally."""
        step = tally.step - 1
        if self._monitor is None or step % self._monitor.every:
            return
        newest = self._monitor.records[-self._count :]
        seen = [r for r in newest if r.step == step and not math.isnan(r.condition)]
        nothing = -math.inf
        condition, rank = self._group.maximum(
            [max((r.condition for r in seen), default=nothing), max((-r.rank for r in seen), default=nothing)]
        )
        if condition > nothing:
            tally.looks.append([condition, int(-rank)])

    def smoothness(self, loss: Callable[[], Tensor], rate: float) -> float:
        """The effective β-smoothness of a loss for steps up to ``rate``; its passes are not recorded."""
        if self._monitor is not None:
            return self._monitor.smoothness(loss, rate=rate)
        return effective_smoothness(loss, self._net, rate=rate)

    def close(self) -> None:
        """Detach the monitor."""
        if self._monitor is not None:
            self._monitor.close()
