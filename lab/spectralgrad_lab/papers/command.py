"""The command ``spectralgrad reproduce``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from spectralgrad.io.files import path_argument

from . import terminal_text
from .items import Item, ItemError, select
from .outcomes import draw, file_of, read_all, write
from .pages import write_pages
from .run_item import Outcome, run
from .training import Setup

_DESCRIPTION = """\
Recompute what the papers claim. Tables, figures, equations and statements are items with what is published, what we
test and compute, a verdict with its weight, and a reason. Results are written as JSON, pictures as PNG and SVG."""
_EXAMPLES = """\
examples:
  spectralgrad reproduce list                    every item, what it needs and how long it takes
  spectralgrad reproduce neurips/table-1         one table
  spectralgrad reproduce tpami/R22 iccv/P16      two items by their numbers
  spectralgrad reproduce iccv                    everything of one paper but training
  spectralgrad reproduce all-analytic            all claims that need no training
  spectralgrad reproduce all-figures
  spectralgrad reproduce all-training --data DIR    small versions of the papers' experiments; takes hours. Stop it
                                                 with Ctrl-C and continue with the same command
  spectralgrad reproduce pages --out docs/papers    write a page for each paper from the results"""
_LONG = 60  # seconds from which on the progress bar says how long an item takes
_DETAILED = 6  # so many items are shown with all their numbers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``spectralgrad reproduce``."""
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("what", nargs="+", metavar="ITEM", help="list, pages, or names of items, tables, figures, papers or groups")
    add(
        "--results",
        type=path_argument,
        default=Path("reproduction"),
        metavar="FOLDER",
        help="where results and pictures are written, and read by `pages` (default: reproduction)",
    )
    add(
        "--data",
        type=path_argument,
        metavar="DIR",
        help="folder of CIFAR-10, or of photos and paintings, for items that train",
    )
    add("--jobs", type=_count, default=2, metavar="N", help="training runs at a time (default: 2)")
    add("--out", type=path_argument, default=Path("papers"), metavar="FOLDER", help="of `pages` (default: papers)")
    add("--so-far", action="store_true", help="evaluate training items by their finished seeds, and train nothing")
    add("--details", action="store_true", help=f"show every number, also for more than {_DETAILED} items")
    parser.set_defaults(run=reproduce)


def reproduce(options: argparse.Namespace) -> int:
    """Run the command; returns 1 if an item could not be computed, whatever the verdicts are."""
    first, *rest = options.what
    console = Console()
    if first == "list":
        items = select(rest or ["all"])
        done = {item.key for item in items if file_of(item, options.results).exists()}
        console.print(terminal_text.listing(items, console.width, done), highlight=False)
        return 0
    if first == "pages":
        return _pages(options.results, options.out, console)
    items = select(options.what)
    if not all(name.endswith("training") or "/" in name for name in options.what):
        items = [item for item in items if item.kind != "training" or "all-training" in options.what]
    _make_folder(options.results)  # an error here comes before hours of work
    setup = Setup(options.results, options.data, options.jobs, partial(console.print, highlight=False), options.so_far)
    try:
        return _run_all(items, setup, options.details or len(items) <= _DETAILED, console)
    except KeyboardInterrupt:
        console.print("stopped; run the same command again to continue. Finished training runs are kept.")
        return 130


def _make_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder}: expected a folder for the results, got a file")
    folder.mkdir(parents=True, exist_ok=True)


def _pages(results: Path, folder: Path, console: Console) -> int:
    outcomes = read_all(results)
    if not outcomes:
        raise ItemError(
            f"no results in {results}; `spectralgrad reproduce all-analytic --results {results}` makes some"
        )
    for outcome in outcomes.values():
        write(outcome, results)  # with the texts and verdicts that the pages have
    for file in write_pages(outcomes, results, folder):
        console.print(f"wrote {file}", highlight=False)
    return 0


def _run_all(items: Sequence[Item], setup: Setup, details: bool, console: Console) -> int:
    verdicts: Counter[str] = Counter()
    failed = unexpected = 0
    with _progress(console) as progress:
        task = progress.add_task("", total=len(items))
        for item in items:
            progress.update(task, description=_working_on(item))
            try:
                outcome = run(item, setup)
                write(outcome, setup.results)
                file = file_of(item, setup.results)
                draw(outcome, file.with_suffix(".png"), file.with_suffix(".svg"))
            except Exception as problem:
                failed += 1
                console.print(f"[red]{item.key}: {type(problem).__name__}: {problem}[/red]", highlight=False)
            else:
                verdicts[outcome.verdict] += 1
                unexpected += not outcome.as_expected
                _show(outcome, details, progress.console)
            progress.advance(task)
    summary = f"{terminal_text.number(len(items))}: {terminal_text.counted(verdicts)}"
    console.print(
        f"\n{summary}{f', {failed} failed' if failed else ''}. Results are in {setup.results}.", highlight=False
    )
    if unexpected:
        console.print(f"{unexpected} came out differently from what is recorded; they are marked with !")
    return 1 if failed else 0


def _working_on(item: Item) -> str:
    if item.runs_of:
        return f"{item.key}, with the runs of {item.runs_of}"
    return f"{item.key}, about {terminal_text.duration(item.seconds)}" if item.seconds > _LONG else item.key


def _show(outcome: Outcome, details: bool, console: Console) -> None:
    if details:
        console.print(terminal_text.heading(outcome), highlight=False)
        if outcome.judged:
            console.print(terminal_text.quantities(outcome))
        if outcome.item.command:
            console.print(terminal_text.full_size(outcome), highlight=False)
    console.print(terminal_text.line(outcome), highlight=False)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a positive whole number, got {text!r}")
    return int(text)


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not sys.stdout.isatty())
