"""What the studies of single calls share: options, the choice of calls, progress, the table, and figures as JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Protocol, TypeVar

from spectralgrad.errors import SpectralError
from spectralgrad.io.files import path_argument, require_writable, write_json

from ..machine import load, machine


class Named(Protocol):
    """A call that is timed, with its name in the table."""

    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=Named)


def add_options(parser: argparse.ArgumentParser, seconds: float, each: str) -> None:
    """Add the options; each row, or ``each`` part of one, takes some ``seconds`` by default."""
    parser.add_argument("--seconds", type=float, default=seconds, help=f"time for each {each} (default: {seconds:g})")
    add_choice(parser)


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose calls, and where their figures go."""
    parser.add_argument("--only", metavar="NAME[,NAME]", help="calls whose names begin so (default: all)")
    parser.add_argument("--json", type=path_argument, help="file for the figures")


def chosen(calls: Sequence[C], only: str | None) -> list[C]:
    """The calls whose names begin with one of the comma-separated words.

    Raises:
        SpectralError: there are none.
    """
    words = tuple(only.split(",")) if only else ("",)
    found = [call for call in calls if call.name.startswith(words)]
    if not found:
        raise SpectralError(f"--only {only}: expected beginnings of {'; '.join(dict.fromkeys(c.name for c in calls))}")
    return found


def measured(
    options: argparse.Namespace,
    jobs: Sequence[tuple[str, Callable[[], Any]]],
    table: Callable[[list[Any]], Iterable[str]],
) -> None:
    """Carry out the jobs, which return rows; print their table, and write the rows if asked to."""
    require_writable(options.json)
    busy = load() or 0.0
    if busy > 0.5:
        print(f"other programs are running (load {busy}): ratios are unreliable\n", file=sys.stderr)
    rows = list(_with_progress(jobs))
    print(*table(rows), sep="\n")
    if options.json:
        write_json(options.json, {"machine": machine(), "rows": [asdict(row) for row in rows]})


def _with_progress(jobs: Sequence[tuple[str, Callable[[], Any]]]) -> Iterator[Any]:
    shown = sys.stderr.isatty()
    for number, (name, job) in enumerate(jobs, 1):
        if shown:
            print(f"\r{number}/{len(jobs)} {name:36s}", end="", file=sys.stderr)
        yield job()
    if shown:
        print("\r" + " " * 48, end="\r", file=sys.stderr)
