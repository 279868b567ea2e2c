"""Finds and moves the last learning-rate decay of a scheduler."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, MultiStepLR, SequentialLR

from ..errors import SpectralError


class Decay(NamedTuple):
    """The last decay of a MultiStepLR: its milestone, and the number of epochs before the scheduler's first one."""

    scheduler: MultiStepLR
    milestone: int
    offset: int

    @property
    def epoch(self) -> int:
        return self.milestone + self.offset


class LastDecay(NamedTuple):
    """The epoch of the last decay, and all decays at that epoch: chained schedulers may decay at the same time."""

    epoch: int
    decays: tuple[Decay, ...]


def last_decay(scheduler: LRScheduler) -> LastDecay:
    """The last decay of a MultiStepLR, alone or inside SequentialLR or ChainedScheduler.

    Raises:
        SpectralError: the scheduler has no milestones.

    Example:
        >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        >>> last_decay(MultiStepLR(optimizer, [30, 45])).epoch
        45
    """
    found = _decays(scheduler, 0)
    if not found:
        raise SpectralError(
            "HybridSwitch: expected a MultiStepLR with milestones, alone or inside SequentialLR or ChainedScheduler, "
            f"got {type(scheduler).__name__}; for another scheduler pass decay_epoch, the epoch of its last decay"
        )
    last = max(decay.epoch for decay in found)
    return LastDecay(last, tuple(decay for decay in found if decay.epoch == last))


def epoch_of(scheduler: Any) -> int:
    """The current epoch of a scheduler. A ChainedScheduler does not count epochs, so its first scheduler is asked."""
    if isinstance(scheduler, ChainedScheduler):
        return epoch_of(scheduler._schedulers[0])
    return int(scheduler.last_epoch)


def move(last: LastDecay, epoch: int) -> LastDecay:
    """Move the last decay to another epoch, by changing the milestones of its schedulers."""
    moved = []
    for decay in last.decays:
        milestones: Counter[int] = Counter(dict(decay.scheduler.milestones))
        times = milestones.pop(decay.milestone)
        milestones[epoch - decay.offset] += times
        decay.scheduler.milestones = milestones
        moved.append(decay._replace(milestone=epoch - decay.offset))
    return LastDecay(epoch, tuple(moved))


def _decays(scheduler: Any, offset: int) -> list[Decay]:
    if isinstance(scheduler, MultiStepLR):
        milestones = [m for m in scheduler.milestones if m > 0]  # a milestone at 0 takes effect before training
        return [Decay(scheduler, max(milestones), offset)] if milestones else []
    if isinstance(scheduler, SequentialLR):
        return _decays(scheduler._schedulers[-1], offset + scheduler._milestones[-1])
    if isinstance(scheduler, ChainedScheduler):
        return [decay for inner in scheduler._schedulers for decay in _decays(inner, offset)]
    return []
