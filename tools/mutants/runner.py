"""Runs mutants: the tests are collected once, and each mutant runs in a fork of that process."""

from __future__ import annotations

import collections
import gc
import hashlib
import importlib
import importlib.machinery
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from .lines import record
from .mistakes import Mutant, mutants
from .settings import ROOT, SETTINGS, STORE, files

QUIET = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:faulthandler", "--no-header"]
FEW = 8  # parametrisations per test for which lines are recorded
_BROKEN = 70


def collect(plugin: object, tests: list[str]) -> None:
    """Collect the tests and pass them to the plugin."""
    code = pytest.main([*QUIET, "-s", "-k", SETTINGS["skipped"], *tests], plugins=[plugin])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit("pytest could not run; no score")


class Runner:
    """A pytest plugin that runs mutants instead of tests."""

    def __init__(self, chosen: list[Mutant], budget: float) -> None:
        self.chosen, self.budget = chosen, budget
        self.kills: collections.Counter[str] = collections.Counter()
        self.outcome: dict[str, str] = {}
        self.pipe = 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record which lines each test executes, then run every mutant in a fork."""
        self.items = {item.nodeid: item for item in session.items}
        under_test = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files([])]
        for name in (
            *under_test,
            "torch._dynamo",
            "mpmath",
            "scipy.linalg",
        ):  # once, before forking
            importlib.import_module(name)
        self.known = _known()
        gc.freeze()  # so that forks share memory
        self.record = self._recorded(_few(list(self.items)))
        for number, mutant in enumerate(self.chosen, 1):
            start = time.time()
            noticed = self._judge(mutant)
            self.outcome[mutant.key] = noticed
            took = f"{time.time() - start:5.1f} s"
            print(f"{number:4}/{len(self.chosen)} {took} {mutant.key}: {noticed or 'SURVIVED'}", flush=True)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """End the fork at the first failure."""
        if report.failed and self.pipe:
            os.write(self.pipe, report.nodeid.encode()[:2000])
            os._exit(1)

    def _judge(self, mutant: Mutant) -> str:
        """The test that detected the mutant, or an empty string."""
        changed = mutant.codes()
        covering = [name for name, (_, lines) in self.record.items() if mutant.runs(lines, everywhere=not changed)]
        functions = {_function(name) for name in covering}
        others = [name for name in self.items if _function(name) in functions and name not in self.record]
        names = self._within_budget(covering + others)
        noticed = self._fork(names, changed) if changed else _at_import(mutant, names)
        if noticed in others and self._fork([noticed], []):
            raise RuntimeError(f"{noticed} fails without a mutant")
        return noticed

    def _within_budget(self, names: list[str]) -> list[str]:
        """The most promising tests: fast ones, those that have detected many mutants, few parametrisations of each."""
        cost = {_function(name): seconds for name, (seconds, _) in self.record.items()}
        turn: collections.Counter[str] = collections.Counter()
        promise = {}
        for name in names:
            function = _function(name)
            turn[function] += 1
            promise[name] = (self.kills[function] + 0.1) / (cost[function] + 0.02) / turn[function]
        spent, chosen = 0.0, []
        for name in sorted(names, key=promise.__getitem__, reverse=True):
            spent += cost[_function(name)]
            if spent < self.budget:
                chosen.append(name)
        return chosen

    def _fork(self, names: list[str], changed: list[tuple[types.CodeType, types.CodeType]]) -> str:
        def run() -> None:
            _replace(self.known, changed)
            for name in names:
                allowed = 10 + 20 * self.record.get(name, (1.0,))[0]
                used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
                signal.alarm(int(10 * allowed))
                resource.setrlimit(resource.RLIMIT_CPU, (int(used + allowed) + 1, resource.RLIM_INFINITY))
                _run(self.items[name])

        failed, status = self._child(run)
        self.kills[_function(failed)] += bool(failed)
        return failed or ("" if status == 0 else f"ended with status {status}")

    def _child(self, work: Callable[[], None]) -> tuple[str, int]:
        """Run ``work`` in a forked process; returns what it writes, and its exit status."""
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            self.pipe = send
            errors, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            try:
                work()
            except BaseException:  # of the runner: what a test raises pytest reports
                os.write(errors, traceback.format_exc().encode())
                os._exit(_BROKEN)
            os._exit(0)
        os.close(send)
        with os.fdopen(receive) as pipe:
            text = pipe.read()
        status = os.waitpid(child, 0)[1]
        if os.waitstatus_to_exitcode(status) == _BROKEN:
            raise RuntimeError("the runner failed, not a test")
        return text, status

    def _recorded(self, names: list[str]) -> dict[str, tuple[float, dict[str, list[int]]]]:
        """For each test, its time in seconds and the lines it executes; stored until the code changes."""
        sources = "".join(path.read_text(encoding="utf-8") for path in files([]))
        store = STORE / f"lines-{hashlib.sha256(sources.encode()).hexdigest()[:12]}.jsonl"
        store.parent.mkdir(parents=True, exist_ok=True)
        store.touch()
        read = lambda: dict(json.loads(line) for line in store.read_text(encoding="utf-8").splitlines())  # noqa: E731
        known = read()
        missing = [name for name in names if name not in known]
        if missing:
            print(f"recording which lines {len(missing)} of {len(self.items)} tests run", flush=True)
            replace = partial(_replace, self.known)
            failed, _ = self._child(lambda: record([self.items[name] for name in missing], store, replace, _run))
            if failed:
                raise RuntimeError(f"{failed} fails without a mutant")
        known = read()
        return {name: known[name] for name in names if name in known}


def _run(item: pytest.Item) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


def _known() -> list[types.FunctionType]:
    """All functions of the package, including those that only torch or a decorator refers to."""
    everything = (f for f in gc.get_objects() if type(f) is types.FunctionType)  # some objects warn if isinstance asks
    return [f for f in everything if f.__code__.co_filename.startswith(str(ROOT / "spectralgrad"))]


def _replace(known: list[types.FunctionType], changed: list[tuple[types.CodeType, types.CodeType]]) -> None:
    for f in known:
        for old, new in changed:
            if f.__code__ == old and f.__code__.co_filename == old.co_filename and old.co_freevars == new.co_freevars:
                f.__code__ = new
                break


def _function(name: str) -> str:
    return name.split("[")[0]


def _few(names: list[str]) -> list[str]:
    """Up to ``FEW`` parametrisations of each test, evenly spaced."""
    grouped: dict[str, list[str]] = collections.defaultdict(list)
    for name in names:
        grouped[_function(name)].append(name)
    spread = lambda group: [group[i * len(group) // FEW] for i in range(FEW)] if len(group) > FEW else group  # noqa: E731
    return [name for group in grouped.values() for name in spread(group)]


def _at_import(mutant: Mutant, names: list[str]) -> str:
    """Run a mutant that changes code executed at import; this requires a new process."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump([mutant.file, mutant.key, names], file)
        file.flush()
        command = [sys.executable, "-c", "import sys; from tools.mutants.runner import imported; imported(sys.argv[1])"]
        done = subprocess.run([*command, file.name], cwd=ROOT, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stdout.split("FAILED ")[-1].splitlines() or ["at import"])[0]


def imported(request: str) -> None:
    """Run the tests that a file names with the mistake it names; called in a process of its own."""
    file, key, names = json.loads(Path(request).read_text(encoding="utf-8"))
    (mutant,) = (m for m in mutants(Path(file)) if m.key == key)
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader, name):  # type: ignore[no-untyped-def]
        return compile(mutant.tree(), file, "exec") if loader.path == file else original(loader, name)

    importlib.machinery.SourceFileLoader.get_code = get_code
    sys.exit(pytest.main([*QUIET, "-x", *names]))
