"""The failure that all processes of a run agree on."""

from __future__ import annotations

import dataclasses
import json

from .process_group import Group, WorkerLostError
from .records import Failure, json_ready


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
