"""Lets threads and processes begin with the switch on, if they are started while it is on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from multiprocessing.process import BaseProcess
from typing import Any


class Starts:
    """The ``start`` methods of threads and processes, through which all of them are started.

    Subclasses may define their own ``run``, so it is replaced for each object by itself, until the start has used it.

    Args:
        covered: the context in which a thread runs.
        enabled: returns the objects that are switched on, to be switched on in a process as well.
    """

    def __init__(self, covered: Callable[[], AbstractContextManager[None]], enabled: Callable[[], Sequence[Any]]):
        def start_thread(thread: threading.Thread) -> None:
            if enabled():
                thread.run = _covered_run(thread, covered)  # type: ignore[method-assign]
            self._originals[0](thread)

        def start_process(process: BaseProcess) -> None:
            if not enabled():
                return self._originals[1](process)
            before = vars(process).get("run")
            process.run = Rescued(process, before, enabled())  # type: ignore[method-assign]
            try:
                self._originals[1](process)
            finally:
                _restore(process, before)

        self._owners: tuple[Any, Any] = (threading.Thread, BaseProcess)
        self._originals: tuple[Any, Any] = (threading.Thread.start, BaseProcess.start)
        self._ours = (start_thread, start_process)

    def install(self) -> None:
        """Replace the methods; without effect if they are replaced."""
        for owner, original, ours in zip(self._owners, self._originals, self._ours, strict=True):
            if owner.start is original:
                owner.start = ours

    def remove(self) -> None:
        """Restore the methods, unless somebody has replaced them since; ours then do nothing of their own."""
        for owner, original, ours in zip(self._owners, self._originals, self._ours, strict=True):
            if owner.start is ours:
                owner.start = original


class Rescued:
    """The ``run`` of a process. If it is spawned, this object is pickled with it."""

    def __init__(self, process: BaseProcess, run: Callable[[], None] | None, enabled: Sequence[Any]) -> None:
        self.process, self.run, self.enabled = process, run, enabled

    def __call__(self) -> None:
        for rescue in self.enabled:
            rescue.enable()
        _restore(self.process, self.run)
        self.process.run()


def _covered_run(thread: threading.Thread, covered: Callable[[], AbstractContextManager[None]]) -> Callable[[], None]:
    before = vars(thread).get("run")

    def run() -> None:
        _restore(thread, before)  # this function refers to the thread: it must not keep it alive
        with covered():
            thread.run()

    return run


def _restore(started: Any, run: Callable[[], None] | None) -> None:
    """Undo the replacement of ``run`` in an object."""
    if run is None:
        vars(started).pop("run", None)
    else:
        started.run = run
