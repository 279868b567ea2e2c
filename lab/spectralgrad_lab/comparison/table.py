"""The table of a comparison: live on a terminal, a line a run elsewhere, and whole at the end."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from spectralgrad.diagnostics.table import number, render

from ..training.checkpoints import CheckpointError
from ..training.config import Config
from ..training.records import Result, count
from ..training.resuming import read_result
from .jobs import Job
from .results import Summary, key, summarise

HEADER = ("method", "d", "success", "error %", "least", "ms/step", "κ")


def cells(summary: Summary) -> tuple[str, ...]:
    """A summary in words.

    Example:
        >>> cells(summarise([Result(Config(group_size=16), "failed")])[0])
        ('exact', '16', '0/1', '–', '–', '–', '–')
    """
    size = "all" if summary.group_size is None else str(summary.group_size)
    return (
        summary.method,
        "–" if summary.label == "batchnorm" else size,
        f"{len(summary.done)}/{len(summary.results)}",
        error(summary),
        _number(summary.least, ".2f"),
        _number(summary.step_ms, ".1f"),
        "–" if math.isnan(summary.condition) else number(summary.condition),
    )


def error(summary: Summary) -> str:
    """Mean and deviation of the test error.

    Example:
        >>> error(summarise([Result(Config(), "failed")])[0])
        '–'
    """
    if math.isnan(summary.mean):
        return "–"
    return f"{summary.mean:.2f}" + ("" if math.isnan(summary.sd) else f" ± {summary.sd:.2f}")


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else f"{value:{form}}"


def text(results: Sequence[Result]) -> str:
    """The whole table."""
    return render(HEADER, [cells(summary) for summary in summarise(results)])


def line(result: Result) -> str:
    """A finished run in one line.

    Example:
        >>> from spectralgrad_lab.training.records import Failure
        >>> failed = Result(Config(method="svd", group_size=16), "failed", failure=Failure(0, 0, "no gradient"))
        >>> print(line(failed))
        svd d=16 seed 0: failed at step 0 (epoch 1): no gradient
    """
    name = dataclasses.replace(summarise([result])[0], sized=True).name + f" seed {result.config.seed}"
    if result.failure is not None:
        return f"{name}: failed at {result.failure}"
    return f"{name}: {result.status}, error {result.final_error:.2f} % after {count(len(result.epochs), 'epoch')}"


@contextmanager
def shown(
    configs: Sequence[Config], known: Sequence[Result], jobs: Sequence[Job], stream: TextIO | None = None
) -> Iterator[Callable[[Result], None]]:
    """Show how a comparison goes; yields what has to be told each new result.

    Args:
        configs: all runs.
        known: results there were before.
        jobs: what is left to do; the state of a run is read from its folder, wherever it is carried out.
        stream: by default stdout.
    """
    wanted = stream or sys.stdout
    found = {key(result.config): result for result in known}
    if not wanted.isatty():
        yield lambda result: print(line(result), file=wanted, flush=True)
        return
    from rich.console import Console
    from rich.live import Live

    picture = _Picture(configs, found, jobs)
    with Live(console=Console(file=wanted), get_renderable=picture, refresh_per_second=2, transient=True):
        yield picture.add


class _Picture:
    """A rich table of the state of things; looked at by rich's own thread."""

    def __init__(self, configs: Sequence[Config], found: dict[str, Result], jobs: Sequence[Job]) -> None:
        self._configs, self._found, self._jobs = configs, found, jobs

    def add(self, result: Result) -> None:
        self._found[key(result.config)] = result

    def __call__(self) -> Any:
        from rich.table import Table

        running = self._running()
        results = [self._found.get(key(c)) or running.get(key(c)) or Result(c, versions={}) for c in self._configs]
        table = Table(caption=f"{len(self._found)} of {len(self._configs)} runs done", caption_justify="left")
        for name in (*HEADER, "now"):
            table.add_column(name, justify="left" if name in ("method", "now") else "right", no_wrap=True)
        for summary in summarise(results):
            table.add_row(*_live(summary), style="red" if summary.failed else "")
        return table

    def _running(self) -> dict[str, Result]:
        waiting = [job for job in self._jobs if key(job.config) not in self._found]
        seen = {}
        for job in waiting:
            try:
                result = read_result(job.folder)
            except (CheckpointError, OSError):
                continue
            if result is not None:
                seen[key(job.config)] = result
        return seen


def _live(summary: Summary) -> tuple[str, ...]:
    ended = dataclasses.replace(summary, results=(*summary.done, *summary.failed))
    going = [r for r in summary.results if r.status == "running" and r.versions]
    row = list(cells(summary))
    row[2] = f"{len(ended.done)}/{len(ended.results)}" if ended.results else "–"
    now = ", ".join(f"seed {r.config.seed}: {len(r.epochs)}/{r.config.epochs} epochs" for r in going)
    return (*row, now or ("" if len(ended.results) == len(summary.results) else "waits"))
