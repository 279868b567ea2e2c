"""The command ``spectralgrad reproduce``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from . import terminal_text
from .items import VERDICTS, Item, select
from .judging import Outcome, run
from .outcomes import read_all, write
from .pages import write_pages
from .training import Setup

_DESCRIPTION = """\
Recompute what the papers claim. Every table, figure, equation and statement is an item with the published number, our
number, a verdict and a reason. Results are written as JSON, pictures as PNG and SVG."""
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
_DETAILED = 6  # so many items are shown with all their numbers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``spectralgrad reproduce``."""
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("what", nargs="+", metavar="ITEM", help="list, pages, or names of items, tables, figures, papers or groups")
    add(
        "--results",
        type=Path,
        default=Path("reproduction"),
        metavar="FOLDER",
        help="where results and pictures are written, and read by `pages` (default: reproduction)",
    )
    add("--data", type=Path, metavar="DIR", help="folder of CIFAR-10, for items that train")
    add("--jobs", type=_count, default=2, metavar="N", help="training runs at a time (default: 2)")
    add("--out", type=Path, default=Path("papers"), metavar="FOLDER", help="of `pages` (default: papers)")
    add("--details", action="store_true", help=f"show every number, also for more than {_DETAILED} items")
    parser.set_defaults(run=reproduce)


def reproduce(options: argparse.Namespace) -> int:
    """Run the command; returns 1 if an item could not be computed, whatever the verdicts are."""
    first, *rest = options.what
    console = Console()
    if first == "list":
        console.print(terminal_text.listing(select(rest or ["all"])))
        return 0
    if first == "pages":
        for file in write_pages(read_all(options.results), options.results, options.out):
            console.print(f"wrote {file}", highlight=False)
        return 0
    items = select(options.what)
    if not all(name.endswith("training") or "/" in name for name in options.what):
        items = [item for item in items if item.kind != "training" or "all-training" in options.what]
    setup = Setup(options.results, options.data, options.jobs, lambda line: console.print(line, highlight=False))
    try:
        return _run_all(items, setup, options.details or len(items) <= _DETAILED, console)
    except KeyboardInterrupt:
        console.print("stopped; run the same command again to continue. Finished training runs are kept.")
        return 130


def _run_all(items: Sequence[Item], setup: Setup, details: bool, console: Console) -> int:
    verdicts: Counter[str] = Counter()
    failed = unexpected = 0
    with _progress(console) as progress:
        task = progress.add_task("", total=len(items))
        for item in items:
            progress.update(task, description=item.key)
            try:
                outcome = run(item, setup)
                write(outcome, setup.results)
            except Exception as problem:
                failed += 1
                console.print(f"[red]{item.key}: {type(problem).__name__}: {problem}[/red]", highlight=False)
            else:
                verdicts[outcome.verdict] += 1
                unexpected += not outcome.as_expected
                _show(outcome, details, progress.console)
            progress.advance(task)
    counts = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in VERDICTS if verdicts[verdict])
    console.print(
        f"\n{len(items)} items: {counts or 'none computed'}. Results are in {setup.results}.", highlight=False
    )
    if unexpected:
        console.print(f"{unexpected} came out differently from what is recorded; they are marked with !")
    return 1 if failed else 0


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
