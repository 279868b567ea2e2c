"""The table of a comparison: a live table on a terminal, one line per run elsewhere, and the final table."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from spectralgrad.diagnostics.table import number, render

from ..training.storage.checkpoints import CheckpointError
from ..training.storage.records import Result, plural
from ..training.storage.resuming import read_result
from .grid import Comparison
from .results import Summary, run_key, summarize

HEADER = ("method", "d", "success", "error %", "best", "ms/step", "κ")
EXTRA: dict[str, Callable[[Summary], float]] = {
    "failed": lambda summary: len(summary.failed) or math.nan,
    "top-5 %": lambda summary: summary.top5,
    "best top-5": lambda summary: summary.best_top5,
    "layer fwd ms": lambda summary: summary.measured("layer_forward_ms"),
    "layer bwd ms": lambda summary: summary.measured("layer_backward_ms"),
    "net fwd ms": lambda summary: summary.measured("forward_ms"),
    "net bwd ms": lambda summary: summary.measured("backward_ms"),
}
"""Columns that are shown if any row has a value: failed runs, top-5 errors after the last and the best epoch, times."""


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


def extra_columns(summaries: Sequence[Summary]) -> tuple[str, ...]:
    """The names of the columns in ``EXTRA`` that these summaries have a value for.

    Example:
        >>> from spectralgrad_lab import Config
        >>> failed = summarize([Result(Config(), "failed")])
        >>> extra_columns(failed), extra_cells(failed[0], extra_columns(failed))
        (('failed',), ('1',))
    """
    return tuple(name for name, value in EXTRA.items() if any(not math.isnan(value(s)) for s in summaries))


def extra_cells(summary: Summary, columns: Sequence[str]) -> tuple[str, ...]:
    """The cells of a summary in some columns of ``EXTRA``."""
    return tuple(_extra(name, EXTRA[name](summary)) for name in columns)


def _extra(name: str, value: float) -> str:
    if name == "failed":
        return "0" if math.isnan(value) else str(int(value))
    return _number(value, ".2f")


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
    summaries = summarize(results)
    extra = extra_columns(summaries)
    return render([*HEADER, *extra], [[*table_cells(s), *extra_cells(s, extra)] for s in summaries])


def result_line(result: Result) -> str:
    """One line that describes a finished run.

    Example:
        >>> from spectralgrad_lab import Config
        >>> from spectralgrad_lab.training.storage.records import Failure
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
        summaries = summarize(results)
        extra = extra_columns(summaries)
        for name in (*HEADER, *extra, "now"):
            table.add_column(name, justify="left" if name in ("method", "now") else "right", no_wrap=True)
        for summary in summaries:
            table.add_row(*_live(summary, extra), style="red" if summary.failed else "")
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


def _live(summary: Summary, extra: Sequence[str]) -> tuple[str, ...]:
    ended = dataclasses.replace(summary, results=(*summary.done, *summary.failed))
    going = [r for r in summary.results if r.status == "running" and r.versions]
    row = list(table_cells(summary))
    row[2] = f"{len(ended.done)}/{len(ended.results)}" if ended.results else "–"
    now = ", ".join(f"seed {r.config.seed}: {len(r.epochs)}/{r.config.epochs} epochs" for r in going)
    return (
        *row,
        *extra_cells(summary, extra),
        now or ("" if len(ended.results) == len(summary.results) else "waiting"),
    )
