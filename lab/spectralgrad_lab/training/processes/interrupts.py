"""Delay signals until the end of a training step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(KeyboardInterrupt):
    """A run was stopped by ``signal``, after its checkpoint was written."""

    def __init__(self, number: int) -> None:
        self.signal = number
        super().__init__(f"stopped by {signal.Signals(number).name}")


class Stop:
    """Records whether a signal asked to stop. A second Ctrl-C raises KeyboardInterrupt at once.

    Example:
        >>> Stop().wanted
        False
    """

    def __init__(self) -> None:
        self.signal = 0

    @property
    def wanted(self) -> bool:
        return self.signal != 0

    def __call__(self, number: int, frame: FrameType | None = None) -> None:
        if self.wanted and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Context in which Ctrl-C and SIGTERM only set a flag. Has no effect outside the main thread.

    Example:
        >>> with stoppable() as stop:
        ...     signal.raise_signal(signal.SIGINT)
        ...     stop.wanted
        True
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
