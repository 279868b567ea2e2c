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
            self._threads.original(thread)

        def start_process(process: BaseProcess) -> None:
            if not enabled():
                return self._processes.original(process)
            before = vars(process).get("run")
            process.run = Rescued(process, before, enabled())  # type: ignore[method-assign]
            try:
                self._processes.original(process)
            finally:
                _restore(process, before)

        self._threads = _Method(threading.Thread, start_thread)
        self._processes = _Method(BaseProcess, start_process)

    def install(self) -> None:
        """Replace the methods; without effect if they are replaced."""
        self._threads.install()
        self._processes.install()

    def remove(self) -> None:
        """Restore the methods."""
        self._threads.remove()
        self._processes.remove()


class _Method:
    """The method ``start`` of a class, and ours, which calls it.

    If somebody else replaces ours, which theirs then calls, it stays for good, and does nothing of its own while the
    switch is off.
    """

    def __init__(self, owner: Any, ours: Callable[[Any], None]) -> None:
        self.owner, self.ours, self.original = owner, ours, owner.start
        self.installed = False

    def install(self) -> None:
        if not self.installed:
            self.original, self.owner.start = self.owner.start, self.ours
            self.installed = True

    def remove(self) -> None:
        if self.owner.start is self.ours:
            self.owner.start = self.original
            self.installed = False


class Rescued:
    """The ``run`` of a process. If it is spawned, this object is pickled with it."""

    def __init__(self, process: BaseProcess, run: Callable[[], None] | None, enabled: Sequence[Any]) -> None:
        self.process: BaseProcess = process
        self.run: Callable[[], None] | None = run
        self.enabled: Sequence[Any] = enabled

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
