"""What all processes of a run agree on: sums of what they count, and why the run failed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

from ..loop.failures import DivergedError
from ..storage.records import Failure, json_ready
from .process_group import Group, WorkerLostError


def agreed_sums(group: Group, trouble: DivergedError | None, here: list[float]) -> list[float]:
    """The sums over all processes; raises if one of them has failed.

    If the run has its own connections, a failed process leaves at once, since others may be waiting inside a layer. On
    GPUs it has none: a failure can be reported only here, and no layer may communicate after it.

    Args:
        group: the processes that train together.
        trouble: what failed in this process; None if nothing did.
        here: the values of this process.

    Raises:
        DivergedError: ``trouble``, or one without a reason if another process has failed.

    Example:
        >>> agreed_sums(Group(), None, [2.0])
        [2.0]
    """
    if trouble is not None and group.process_group is not None:
        raise trouble
    failed, *sums = group.total([float(trouble is not None), *here])
    if failed:
        raise trouble or DivergedError("")
    return sums


def agreed_ending(
    group: Group,
    train: Callable[[], None],
    failure: Callable[[DivergedError], Failure],
    release: Callable[[Group], None],
) -> Failure | None:
    """Train to the end. Returns the failure on which all processes agree; None if nothing failed.

    Args:
        group: the processes that train together.
        train: trains; raises DivergedError if this process fails.
        failure: returns what to record of an error.
        release: lets go of the connections of the run, which are then closed so that other processes do not block.

    Raises:
        WorkerLostError: another process died.
    """
    here, lost = _ending(group, train, failure)
    if here is None and lost is None:
        return None
    release(group)
    group.leave(failed=True)
    return agreed_failure(group, here, lost)


def _ending(
    group: Group, train: Callable[[], None], failure: Callable[[DivergedError], Failure]
) -> tuple[Failure | None, WorkerLostError | None]:
    """Train; returns what failed here, or that a process was lost. A traceback would keep tensors alive."""
    try:
        train()
    except DivergedError as problem:
        return failure(problem), None
    except RuntimeError as problem:
        if not group.is_lost_worker(problem):
            raise
        return None, WorkerLostError(group.rank, group.world, problem)
    return None, None


def agreed_failure(group: Group, here: Failure | None, lost: WorkerLostError | None) -> Failure:
    """The failure on which all processes agree; one that names a layer is preferred.

    Args:
        group: the processes that train together.
        here: what failed in this process; None if nothing did.
        lost: another process was lost.

    Raises:
        WorkerLostError: no process gives a reason, or one has died and this is not a leader that has failed itself.

    Example:
        >>> agreed_failure(Group(), Failure(3, 0, "the loss is not finite"), None).step
        3
    """
    if group.world == 1 and here is not None:
        return here
    try:
        note = json.dumps(json_ready(dataclasses.asdict(here))) if here and here.reason else ""
        notes = group.gather_texts(note)
    except RuntimeError as problem:
        if here is not None and group.is_leader and group.is_lost_worker(problem):
            return here
        raise (lost or problem) from None
    found = sorted((json.loads(note) for note in notes if note), key=lambda note: note["layer"] is None)
    if not found:
        raise lost or WorkerLostError(group.rank, group.world, RuntimeError("no process gives a reason"))
    return Failure.from_dict(found[0])
