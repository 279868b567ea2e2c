"""Runs in the interpreter of a program that ``programs.py`` starts, before the program.

Python imports a module of this name when it starts, and the folder of this one is first on its path. The program is
left to the interpreter. It must find torch not imported yet, because it may set environment variables that torch reads
when it is imported; so nothing of this package is imported here, and a finder waits for the program to import torch.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any


class Start:
    """A finder of modules that calls a function of this package when the program has imported torch.

    If that function returns another one, it is called when the process ends: after the threads of the program have
    ended and its own handlers of atexit have run.

    Args:
        root: the folder that contains this package.
        begin: the function, as ``module:name``.
        arguments: its keyword arguments.
        idle: printed at the end if the program did not import torch; None: call the function then.
    """

    def __init__(self, root: str, begin: str, arguments: dict[str, Any], idle: str | None) -> None:
        self._root, self._function, self._arguments, self._idle = root, begin, arguments, idle
        self._process, self._begun = os.getpid(), False
        self._finish: Callable[[], None] | None = None

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return what the other finders find for torch, with a loader that calls :meth:`begin` at its end."""
        if name != "torch" or self._begun:
            return None
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            vars(loader).pop("exec_module", None)  # the loader stays as it is without us
            execute(module)
            self.begin()

        loader.exec_module = exec_module

    def begin(self) -> None:
        """Import the function and call it, once."""
        if self._begun:
            return
        self._begun = True
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        module, name = self._function.split(":")
        path = sys.path[:]
        sys.path.append(self._root)
        try:
            self._finish = getattr(import_module(module), name)(**self._arguments)
        finally:
            sys.path[:] = path

    def end(self) -> None:
        """Call what :meth:`begin` has returned; not in a process that was forked, which has calls of its own."""
        if os.getpid() != self._process:
            return
        if self._idle is None:
            self.begin()
        elif self._idle and not self._begun:
            print(self._idle, file=sys.stderr)
        if self._finish is not None:
            self._finish()


def _install() -> None:
    """Undo what brought us here, and wait for torch."""
    here = os.path.dirname(__file__)
    sys.path.remove(here)
    sys.path_importer_cache.pop(here, None)
    plan = json.loads(os.environ.pop("SPECTRALGRAD_START"))
    path = plan.pop("path")
    if path is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = path
    start = Start(**plan)
    atexit.register(start.end)  # the first to be registered is the last to run
    sys.meta_path.insert(0, start)
    if "torch" in sys.modules:  # a .pth file may have imported it
        start.begin()


if __name__ == "sitecustomize":
    _install()
    del sys.modules["sitecustomize"]
    import_module("sitecustomize")  # the one of this machine; the ImportError says that there is none, as ever
