"""When a checkpoint is due, and what every checkpoint contains besides the state of the run: all random states."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from ... import untrusted_json
from ..processes.process_group import Group
from ..processes.surroundings import Session
from . import checkpoints, randomness
from .saved_state import read_tensor, reader_like


class Saves:
    """Saves the checkpoints of a run.

    Args:
        now: the session of the run; without a folder nothing is saved.
        minutes: between two checkpoints.

    Example:
        >>> Saves(Session(), minutes=0).due
        False
    """

    def __init__(self, now: Session, minutes: float) -> None:
        self._now, self._minutes, self._last = now, minutes, monotonic()

    @property
    def due(self) -> bool:
        """True in the leading process if the last checkpoint is old enough."""
        return self._now.written is not None and monotonic() - self._last >= 60 * self._minutes

    def save(self, state: Callable[[], dict[str, Any]]) -> None:
        """Save a checkpoint; all processes must call this.

        Args:
            state: returns what to save, without random states; called in the leading process only.

        Raises:
            OSError: writing failed; the previous checkpoint is still valid.
        """
        if self._now.folder is None:
            return
        states = {name: self._now.group.gather(value) for name, value in randomness.capture().items()}
        if self._now.group.is_leader:
            checkpoints.save(self._now.folder, {"random": states, **state()})
        self._last = monotonic()


def restore_random(state: dict[str, Any], group: Group) -> None:
    """Restore the random states of this process from a checkpoint; processes that are new keep theirs.

    Raises:
        InvalidValueError: the checkpoint has no valid random states.
    """
    kinds = randomness.capture()
    required = {name: untrusted_json.list_of(reader_like(value)) for name, value in kinds.items() if name != "cuda"}
    read = untrusted_json.record(required, {"cuda": untrusted_json.list_of(read_tensor)})
    found = untrusted_json.record({"random": read})(state, "state")["random"]
    if group.rank < min(map(len, found.values())):
        randomness.restore({name: values[group.rank] for name, values in found.items()})
