"""The table of a comparison: a live table on a terminal, one line per run elsewhere, and the final table."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from spectralgrad.diagnostics.table import number, render

from ..training.checkpoints import CheckpointError
from ..training.records import Result, plural
from ..training.resuming import read_result
from .grid import Comparison
from .results import Summary, run_key, summarize

HEADER = ("method", "d", "success", "error %", "best", "ms/step", "κ")


def table_cells(summary: Summary) -> tuple[str, ...]:
    """The cells of a summary.

    Example:
        >>> from spectralgrad_lab import Config
        >>> table_cells(summarize([Result(Config(group_size=16), "failed")])[0])
        ('exact', '16', '0/1', '–', '–', '–', '–')
    """
    size = "all" if summary.group_size is None else str(summary.group_size)
    return (
        summary.method,
        "–" if summary.label == "batchnorm" else size,
        f"{len(summary.done)}/{len(summary.results)}",
        error(summary),
        _number(summary.best, ".2f"),
        _number(summary.step_ms, ".1f"),
        "–" if math.isnan(summary.condition) else number(summary.condition),
    )


def error(summary: Summary) -> str:
    """Mean and standard deviation of the test error.

    Example:
        >>> from spectralgrad_lab import Config
        >>> error(summarize([Result(Config(), "failed")])[0])
        '–'
    """
    if math.isnan(summary.mean):
        return "–"
    return f"{summary.mean:.2f}" + ("" if math.isnan(summary.sd) else f" ± {summary.sd:.2f}")


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else f"{value:{form}}"


def as_text(results: Sequence[Result]) -> str:
    """The whole table."""
    return render(HEADER, [table_cells(summary) for summary in summarize(results)])


def result_line(result: Result) -> str:
    """One line that describes a finished run.

    Example:
        >>> from spectralgrad_lab import Config
        >>> from spectralgrad_lab.training.records import Failure
        >>> failed = Result(Config(method="svd", group_size=16), "failed", failure=Failure(0, 0, "no gradient"))
        >>> print(result_line(failed))
        svd d=16 seed 0: failed at step 0 (epoch 1): no gradient
    """
    name = dataclasses.replace(summarize([result])[0], show_size=True).name + f" seed {result.config.seed}"
    if result.failure is not None:
        return f"{name}: failed at {result.failure}"
    return f"{name}: {result.status}, error {result.final_error:.2f} % after {plural(len(result.epochs), 'epoch')}"


@contextmanager
def live_progress(comparison: Comparison, stream: TextIO | None = None) -> Iterator[Callable[[Result], None]]:
    """Show the progress of a comparison; yields the callback to pass as ``on_result``.

    A terminal shows a live table; any other stream receives one line per finished run.

    Args:
        comparison: its results and the folders of its runs are read while they are carried out, here or elsewhere.
        stream: where to write (default: stdout).
    """
    target = stream or sys.stdout
    if not target.isatty():
        yield lambda result: print(result_line(result), file=target, flush=True)
        return
    from rich.console import Console
    from rich.live import Live

    table = _LiveTable(comparison)
    with Live(console=Console(file=target), get_renderable=table, refresh_per_second=2, transient=True):
        yield lambda _: None


class _LiveTable:
    """The current state of a comparison as a rich table. Rich calls it from a thread of its own."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    def __call__(self) -> Any:
        from rich.table import Table

        comparison, running = self._comparison, self._running()
        results = [
            comparison.result_of(c) or running.get(run_key(c)) or Result(c, versions={}) for c in comparison.configs
        ]
        caption = f"{comparison.finished} of {len(comparison.configs)} runs done"
        table = Table(caption=caption, caption_justify="left")
        for name in (*HEADER, "now"):
            table.add_column(name, justify="left" if name in ("method", "now") else "right", no_wrap=True)
        for summary in summarize(results):
            table.add_row(*_live(summary), style="red" if summary.failed else "")
        return table

    def _running(self) -> dict[str, Result]:
        """What unfinished runs have written into their folders so far."""
        found = {}
        for job in self._comparison.jobs:
            if self._comparison.result_of(job.config) is not None:
                continue
            try:
                result = read_result(job.folder)
            except (CheckpointError, OSError):  # being written, or damaged: the run itself will report it
                continue
            if result is not None:
                found[run_key(job.config)] = result
        return found


def _live(summary: Summary) -> tuple[str, ...]:
    ended = dataclasses.replace(summary, results=(*summary.done, *summary.failed))
    going = [r for r in summary.results if r.status == "running" and r.versions]
    row = list(table_cells(summary))
    row[2] = f"{len(ended.done)}/{len(ended.results)}" if ended.results else "–"
    now = ", ".join(f"seed {r.config.seed}: {len(r.epochs)}/{r.config.epochs} epochs" for r in going)
    return (*row, now or ("" if len(ended.results) == len(summary.results) else "waiting"))
