"""Training runs of an item: carried out once, kept in ``RESULTS/PAPER/ID/results.jsonl``, resumed when interrupted."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from spectralgrad.io.files import write_text

from ..comparison.grid import Comparison
from ..comparison.jobs import Engine, InProcess, Job, Processes, worker_errors
from ..comparison.results import RESULTS, Summary, run_key
from ..data import DATASETS
from ..training.config.folder_names import label
from ..training.config.run_config import Config
from ..training.storage.records import Result, plural
from .items import Item, ItemError, all_items

Settings = Mapping[str, Sequence[Config]]
"""The runs of an item: by name of the setting, one configuration per seed."""
Task = dict[str, Any]
ADVICE = {
    "CIFAR-10": DATASETS["cifar10"].advice,
    "photographs and paintings": "Expected two folders of images, DIR/photos and DIR/paintings.",
}
"""What to say if data are missing, by what an item needs."""


@dataclass(frozen=True)
class Setup:
    """Where and how training runs are carried out.

    Attributes:
        results: the folder of all results.
        data: the folder of the data, such as CIFAR-10; None is enough to evaluate runs that are done.
        jobs: number of runs at a time.
        report: receives a line of text per finished run.
        so_far: evaluate the seeds whose runs are all there, and train nothing.
    """

    results: Path
    data: Path | None = None
    jobs: int = 2
    report: Callable[[str], None] = print
    so_far: bool = False

    def of(self, item: Item) -> Training:
        """The runs of an item, in a folder of their own."""
        return Training(item, self.results / item.paper / item.id, self)


@dataclass(frozen=True)
class Training:
    """The training runs of an item.

    Attributes:
        item: the item.
        folder: of its runs; holds results.jsonl, and checkpoints in ``runs``.
        setup: data and number of jobs.
        ran: the configurations of :meth:`run`.
        unfinished: which part of the runs is evaluated, such as "2 of 5 seeds"; empty if it is all of them.
    """

    item: Item
    folder: Path
    setup: Setup
    ran: list[Config] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)

    def of(self, key: str) -> Training:
        """The runs of another item, which this one shows in another way."""
        (item,) = (item for item in all_items() if item.key == key)
        return self.setup.of(item)

    def run(self, settings: Settings) -> dict[str, Summary]:
        """Carry out the runs that have no result yet.

        The first seed of all settings comes first, so that an interrupted item can be looked at. The results name no
        folder of the data: a run does not depend on it.

        Args:
            settings: one configuration per seed for each setting, without ``data``.

        Returns:
            the results of each setting, by its name.

        Raises:
            ItemError: runs are missing and so are the data.
            KeyboardInterrupt: stopped; the same call continues.
        """
        settings = self._complete(settings) if self.setup.so_far else settings
        most = max(map(len, settings.values()))
        ordered = [configs[i] for i in range(most) for configs in settings.values() if i < len(configs)]
        self.ran.extend(ordered)
        comparison = Comparison(ordered, self.folder)
        total, count = len(ordered), comparison.finished
        names = {run_key(config): name for name, configs in settings.items() for config in configs}
        self._begin(total - count, total)

        def finished(result: Result) -> None:
            nonlocal count
            count += 1
            name = names.get(run_key(result.config), label(result.config))
            self.setup.report(f"  {count}/{total}  {name}, {_described(result)}")

        comparison.run(WithData(self._engine(), self.setup.data), finished)
        found = {name: tuple(map(comparison.result_of, configs)) for name, configs in settings.items()}
        return {name: Summary(name, None, "", tuple(r for r in runs if r)) for name, runs in found.items()}

    def each(self, function: Callable[[Task], Task], tasks: Sequence[Task]) -> list[Task]:
        """Apply a function to the tasks that have no result yet, for training that a :class:`Config` cannot describe.

        Args:
            function: of a module, perhaps with first arguments bound by ``partial``; it receives a task and the folder
                of the data as ``data``, and returns plain values.
            tasks: plain values.

        Returns:
            the results, in the order of the tasks.

        Raises:
            ItemError: results are missing and so are the data.
            KeyboardInterrupt: stopped; finished tasks are kept.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        known = dict(self._read())
        left = [task for task in tasks if _key(task) not in known]
        self._begin(len(left), len(tasks))
        for task, values in self._map(partial(_stoppable, function, str(self.setup.data)), left):
            known[_key(task)] = values
            self._write(known)
            self.setup.report(f"  {len(known)}/{len(tasks)}  {_named(task)}")
        return [known[_key(task)] for task in tasks]

    def ready(self, tasks: Sequence[Task]) -> list[Task]:
        """The tasks to evaluate: all of them, or those of the seeds for which :meth:`each` has every result.

        Raises:
            ItemError: only finished seeds are wanted, and there is none.
        """
        if not self.setup.so_far:
            return list(tasks)
        known, seeds = dict(self._read()), sorted({task["seed"] for task in tasks})
        lacking = {task["seed"] for task in tasks if _key(task) not in known}
        self._note([seed for seed in seeds if seed not in lacking], len(seeds))
        return [task for task in tasks if task["seed"] not in lacking]

    def _complete(self, settings: Settings) -> Settings:
        """The settings with those of their seeds for which every setting has a result."""
        known = Comparison([], self.folder)
        lacking = {c.seed for configs in settings.values() for c in configs if known.result_of(c) is None}
        seeds = sorted({config.seed for configs in settings.values() for config in configs})
        self._note([seed for seed in seeds if seed not in lacking], len(seeds))
        return {name: [c for c in configs if c.seed not in lacking] for name, configs in settings.items()}

    def _note(self, done: Sequence[int], total: int) -> None:
        if not done:
            raise ItemError(f"{self.item.key}: there is no seed for which all runs are done")
        if len(done) < total:
            self.unfinished.append(f"{len(done)} of {plural(total, 'seed')}")

    def _begin(self, left: int, total: int) -> None:
        if not left:
            return
        if self.item.needs and self.setup.data is None:
            raise ItemError(
                f"{left} of {plural(total, 'run')} left, which need {self.item.needs}: --data DIR. "
                f"{ADVICE[self.item.needs]}"
            )
        done = f", {total - left} of them done already" if left < total else ""
        self.setup.report(f"{self.item.key}: {plural(total, 'run')}{done}; {self.setup.jobs} at a time")

    def _engine(self) -> Engine:
        return Processes(self.setup.jobs) if self.setup.jobs > 1 else InProcess()

    def _map(self, function: Callable[[Task], Task], tasks: Sequence[Task]) -> Iterator[tuple[Task, Task]]:
        if self.setup.jobs > 1:
            return Processes(self.setup.jobs).map(partial(_in_worker, function), tasks)
        return ((task, function(task)) for task in tasks)

    def _write(self, known: Mapping[str, Task]) -> None:
        lines = [json.dumps({"task": json.loads(key), "result": r}, allow_nan=False) for key, r in known.items()]
        write_text(self.folder / RESULTS, "".join(line + "\n" for line in lines))

    def _read(self) -> Iterator[tuple[str, Task]]:
        file = self.folder / RESULTS
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            entry = json.loads(line)
            yield _key(entry["task"]), entry["result"]


@dataclass(frozen=True)
class WithData:
    """An engine that gives runs the folder of their data, and takes it out of their results."""

    engine: Engine
    data: Path | None

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        folder = None if self.data is None else str(self.data.resolve())
        given = {job.name: job for job in jobs}
        for job, result in self.engine.run([replace(j, config=j.config.replaced(data=folder)) for j in jobs]):
            yield given[job.name], replace(result, config=result.config.replaced(data=None))


def _in_worker(function: Callable[[Task], Task], task: Task) -> Task:
    with worker_errors(_named(task)):
        return function(task)


def _stoppable(function: Callable[[Task], Task], data: str, task: Task) -> Task:
    """Call a function in a process that SIGTERM ends, except while it trains a run that writes a checkpoint first."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        return function({**task, "data": data})
    finally:
        signal.signal(signal.SIGTERM, before)


def _key(task: Task) -> str:
    return json.dumps(task, sort_keys=True)


def _named(task: Task) -> str:
    return ", ".join(f"{name} {value}" for name, value in task.items())


def _described(result: Result) -> str:
    end = str(result.failure) if result.failure else f"error {result.final_error:.2f} %"
    return f"seed {result.config.seed}: {end}, {result.seconds:.0f} s"
