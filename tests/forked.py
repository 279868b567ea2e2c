"""Processes that start with torch already imported: a fork takes milliseconds, the imports take four seconds.

They are forked from a server that has imported torch and computed nothing. Nothing of this project is imported there,
so each process imports it anew and in its own environment, as a new interpreter does.
"""

import multiprocessing
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Forked:
    """What ``python -m module`` or ``python -c code`` would do, with the part of subprocess.Popen that tests use."""

    def __init__(self, *arguments, cwd=ROOT, environment=None):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "torch._dynamo"])  # an optimizer imports the second
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._files = [Path(folder, name) for name in ("stdout", "stderr")]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        work = ([*map(str, arguments)], self._files, str(cwd), environment)
        self._process = context.Process(target=_main, args=work)
        self._process.start()
        self.pid, self.kill = self._process.pid, self._process.kill

    @property
    def returncode(self):
        """Its exit code, negative for a signal, None while it runs."""
        return self._process.exitcode

    def said(self, encoding="utf-8"):
        """What it has written to stdout and to stderr so far."""
        return [file.read_text(encoding) if file.exists() else "" for file in self._files]

    def communicate(self, timeout=None, encoding="utf-8"):
        """Wait for its end; what it wrote to stdout and to stderr."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked process", timeout, *self.said(encoding))
        return self.said(encoding)


def run(*arguments, timeout=600, encoding="utf-8", check=False, **options):
    """Like subprocess.run with its output captured."""
    process = Forked(*arguments, **options)
    try:
        said = process.communicate(timeout, encoding)
    finally:
        process.kill()
    assert not check or process.returncode == 0, said[1]
    return subprocess.CompletedProcess(arguments, process.returncode, *said)


def _main(arguments, files, cwd, environment):
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    for number, file, errors in ((1, files[0], "strict"), (2, files[1], "backslashreplace")):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        stream = open(number, "w", encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, ("stdout", "stderr")[number - 1], stream)
    kind, what, *rest = arguments
    sys.argv = [kind, *rest]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
