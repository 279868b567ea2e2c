"""Runs mutants: the tests are collected once, and each mutant runs in a fork of that process."""

from __future__ import annotations

import collections
import gc
import importlib
import importlib.machinery
import json
import os
import re
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

from .lines import Record, record, recorded
from .mistakes import Mutant, mutants
from .settings import ROOT, SETTINGS, STORE, Part

QUIET = ["-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--no-header", "-m", ""]  # of every tier
OUTCOMES = STORE / "outcomes.jsonl"  # each mutant that was run, and the test that detected it
_BROKEN = 70


def stored_outcomes() -> dict[str, str]:
    """The outcomes of all runs, the last of each mutant."""
    lines = OUTCOMES.read_text(encoding="utf-8").splitlines() if OUTCOMES.exists() else []
    return dict(json.loads(line) for line in lines)


def collect(plugin: object, tests: list[str]) -> None:
    """Collect the tests and pass them to the plugin."""
    code = pytest.main([*QUIET, "-s", "-k", SETTINGS["skipped"], *tests], plugins=[plugin])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit("pytest could not run; no score")


class Runner:
    """A pytest plugin that runs mutants instead of tests."""

    def __init__(self, part: Part, chosen: list[Mutant], budget: float, outcomes: dict[str, str]) -> None:
        self.part, self.chosen, self.budget, self.outcomes = part, chosen, budget, outcomes
        self.kills = collections.Counter(_function(name) for name in outcomes.values())
        self.pipe = 0
        self.recording, self.failed = False, set[str]()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record which lines each test executes, then run every mutant in a fork."""
        self.items = {item.nodeid: item for item in session.items}
        under_test = [_module(path) for path in self.part.files]
        for name in (*under_test, "torch._dynamo", "mpmath", "scipy.linalg"):  # once, before forking
            importlib.import_module(name)
        gc.unfreeze()  # the functions that an earlier part has imported
        self.known = _known(self.part.files)
        gc.freeze()  # so that forks share memory
        self.record = self._recorded(_few(list(self.items), self.part.parametrizations))
        for number, mutant in enumerate(self.chosen, 1):
            start = time.time()
            noticed = self._judge(mutant)
            self.outcomes[mutant.key] = noticed
            with OUTCOMES.open("a", encoding="utf-8") as file:
                file.write(json.dumps([mutant.key, noticed], ensure_ascii=False) + "\n")
            took = f"{time.time() - start:5.1f} s"
            print(f"{number:4}/{len(self.chosen)} {took} {mutant.key}: {noticed or 'SURVIVED'}", flush=True)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """End the fork at the first failure, except while recording."""
        if report.failed and self.pipe:
            os.write(self.pipe, f"{report.nodeid}\n".encode()[:2000])
            if not self.recording:
                os._exit(1)
            self.failed.add(report.nodeid)

    def _judge(self, mutant: Mutant) -> str:
        """The test that detected the mutant, or an empty string."""
        changed = mutant.codes()
        covering = self._covering(mutant, everywhere=not changed)
        if not covering:  # no test executes it; perhaps the import does
            changed, covering = [], self._covering(mutant, everywhere=True)
        functions = {_function(name) for name in covering}
        others = [name for name in self.items if _function(name) in functions and name not in self.record]
        # What a module does at import may matter to tests that execute no line of its functions; these come last.
        more = [] if changed else [name for name in self.record if name not in covering]
        names = self._within_budget(covering + others, more)
        noticed = self._fork(names, changed) if changed else _at_import(mutant, names)
        if noticed in others and self._fork([noticed], []):
            print(f"{noticed} fails without a mutant and is left out", flush=True)
            del self.items[noticed]
            return self._judge(mutant)
        return noticed

    def _covering(self, mutant: Mutant, everywhere: bool) -> list[str]:
        return [name for name, (_, lines) in self.record.items() if mutant.runs(lines, everywhere)]

    def _within_budget(self, names: list[str], more: list[str]) -> list[str]:
        """The most promising tests: fast ones, those that have detected many mutants, few parametrisations of each.

        ``more`` are chosen if time is left.
        """
        cost = {_function(name): seconds for name, (seconds, _) in self.record.items()}
        turn: collections.Counter[str] = collections.Counter()
        promise = {}
        for name in names + more:
            function = _function(name)
            turn[function] += 1
            promise[name] = (self.kills[function] + 0.1) / (cost[function] + 0.02) / turn[function]
        spent, chosen = 0.0, []
        by_promise = partial(sorted, key=promise.__getitem__, reverse=True)
        for name in by_promise(names) + by_promise(more):
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
                signal.alarm(int(60 * allowed))  # for a deadlock; a busy machine must not kill a mutant
                resource.setrlimit(resource.RLIMIT_CPU, (int(used + allowed) + 1, resource.RLIM_INFINITY))
                _run(self.items[name])

        failed, status = self._child(run)
        self.kills[_function(failed.strip())] += bool(failed)
        return failed.strip() or ("" if status == 0 else f"ended with status {status}")

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

    def _recorded(self, names: list[str]) -> Record:
        """Record the tests of which nothing is stored; returns the record of all."""
        store = STORE / f"lines-{self.part.name}.jsonl"
        store.parent.mkdir(parents=True, exist_ok=True)
        known = recorded(store, self.part.files)
        missing = [name for name in names if name not in known]
        if missing:
            print(f"recording which lines {len(missing)} of {len(self.items)} tests run", flush=True)
            failed, _ = self._child(partial(self._record, [self.items[name] for name in missing], store))
            for name in failed.splitlines():
                print(f"{name} fails without a mutant and is left out", flush=True)
        known = recorded(store, self.part.files)
        return {name: known[name] for name in names if name in known}

    def _record(self, items: list[pytest.Item], store: Path) -> None:
        def passes(item: pytest.Item) -> bool:
            _run(item)
            return item.nodeid not in self.failed

        self.recording = True
        record(items, store, self.part.files, partial(_replace, self.known), passes)


def _run(item: pytest.Item) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


def _module(path: Path) -> str:
    """The name under which a module is imported."""
    package = next(folder for folder in path.parents if not (folder.parent / "__init__.py").exists())
    return ".".join(path.relative_to(package.parent).with_suffix("").parts)


def _known(files: list[Path]) -> list[types.FunctionType]:
    """All functions of these files, including those that only torch or a decorator refers to."""
    names = {str(path) for path in files}
    everything = (f for f in gc.get_objects() if type(f) is types.FunctionType)  # some objects warn if isinstance asks
    return [f for f in everything if f.__code__.co_filename in names]


def _replace(known: list[types.FunctionType], changed: list[tuple[types.CodeType, types.CodeType]]) -> None:
    for f in known:
        for old, new in changed:
            if f.__code__ == old and f.__code__.co_filename == old.co_filename:
                f.__code__ = new
                break


def _function(name: str) -> str:
    return name.split("[")[0]


def _few(names: list[str], most: int) -> list[str]:
    """Up to ``most`` parametrisations of each test, evenly spaced."""
    grouped: dict[str, list[str]] = collections.defaultdict(list)
    for name in names:
        grouped[_function(name)].append(name)
    spread = lambda group: [group[i * len(group) // most] for i in range(most)] if len(group) > most else group  # noqa: E731
    return [name for group in grouped.values() for name in spread(group)]


def _at_import(mutant: Mutant, names: list[str]) -> str:
    """Run a mutant that changes code executed at import; this requires a new process."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump([mutant.file, mutant.key, names], file)
        file.flush()
        command = [sys.executable, "-c", "import sys; from tools.mutants.runner import imported; imported(sys.argv[1])"]
        done = subprocess.run([*command, file.name], cwd=ROOT, capture_output=True, text=True)
    if done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if failed is None and "while loading conftest" not in done.stderr:
        raise RuntimeError(f"pytest could not run\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed[1] if failed else "at import"


def imported(request: str) -> None:
    """Run the tests that a file names with the mistake it names; called in a process of its own."""
    file, key, names = json.loads(Path(request).read_text(encoding="utf-8"))
    (mutant,) = (m for m in mutants(Path(file)) if m.key == key)
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader, name):  # type: ignore[no-untyped-def]
        return compile(mutant.tree(), file, "exec") if loader.path == file else original(loader, name)

    importlib.machinery.SourceFileLoader.get_code = get_code
    files = dict.fromkeys(name.split("::")[0] for name in names)
    sys.exit(pytest.main([*QUIET, "-x", *files], plugins=[_Selection(names)]))


class _Selection:
    """A pytest plugin that selects tests by name; those that the mistake makes disappear are left out."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[name] for name in self.names if name in found]
