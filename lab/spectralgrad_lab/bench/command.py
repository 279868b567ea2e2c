"""The command ``spectralgrad bench``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from spectralgrad.io.files import PLOTS, path_argument, require_writable, require_writable_folder, write_json

from ..machine import load
from . import cost_figure, every_contestant, report_folder, stored_outcomes, table
from .cases import DTYPES, SPECTRA
from .comparisons import CONTESTS
from .comparisons import run as run_contests
from .goals import rows
from .plan import plan

_DESCRIPTION = """\
Compare the speed of this library with torch.linalg, plain autograd, Newton-Schulz, JAX and other installed libraries,
and with the floors and goals of the project. Results are first checked against float64 references: a method that claims
to be exact and is not is reported as wrong and not timed. Methods run alternately, the minimum of many times is
reported, and torch uses whichever is faster of one thread and two. On a busy machine, increase --seconds."""
_EXAMPLES = """\
examples:
  spectralgrad bench                                  the whole table, about nine minutes
  spectralgrad bench --quick                          smaller matrices, about two minutes
  spectralgrad bench --report bench.html              and a page with pictures
  spectralgrad bench --report DIR                     the page, its pictures, a Markdown table and the data
  spectralgrad bench --from DIR/bench.json            the table of an earlier run
  spectralgrad bench --only eigh --dtype float64 --spectrum graded,clustered
  spectralgrad bench layers                           one of the studies"""


_STUDIES = {
    "calls": ("studies.calls", "one call of each public function for one small matrix, beside torch"),
    "threads": ("studies.threads", "how much faster two threads are than one, beside a matrix product"),
    "launches": ("studies.launches", "how many kernels each function launches on an accelerator, beside torch"),
    "layers": ("studies.layers", "the layers compared with batch normalization"),
    "group-whitening": (
        "studies.group_whitening",
        "whitening as in the translation network of TPAMI 2021, by several methods",
    ),
    "treatments": ("studies.treatment_cost", "the time that NOG, OLR and the monitor add to a training step"),
    "condition-curves": ("studies.condition_curves", "condition numbers over training under each treatment"),
    "eigsh": ("studies.large_operators", "time and memory of eigsh for sparse matrices of up to a million rows"),
    "renewed": (
        "studies.renewed_statistics",
        "the networks of a comparison, tested with recomputed running statistics",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``spectralgrad bench`` and of its studies."""
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--quick", action="store_true", help="smaller matrices and less time for each: about two minutes")
    add("--only", type=_some(CONTESTS), metavar="NAME[,NAME]", help=f"of {', '.join(CONTESTS)} (default: all)")
    add(
        "--dtype", type=_some(DTYPES), metavar="NAME[,NAME]", help=f"of {', '.join(DTYPES)} (default: those with goals)"
    )
    add(
        "--spectrum",
        type=_some(SPECTRA),
        metavar="NAME[,NAME]",
        help=f"of {', '.join(SPECTRA)}, for symmetric matrices (default: those with goals)",
    )
    add("--seconds", type=_positive, metavar="S", help="time for each cell (default: 1; with --quick 0.15)")
    add("--details", action="store_true", help="also print the times and errors of all implementations")
    add(
        "--from",
        dest="source",
        type=path_argument,
        metavar="FILE",
        help="measure nothing: use the JSON file of an earlier run",
    )
    add("--json", type=path_argument, metavar="FILE", help="also write times, errors, ratios and the machine as JSON")
    add("--plot", type=path_argument, metavar="FILE", help="also plot the cost against d and B (png, svg or pdf)")
    add(
        "--report",
        type=path_argument,
        metavar="PATH",
        help="also write a page with tables and pictures: a file that ends in .html, or a folder for the page, its"
        " pictures, the table in Markdown and the data",
    )
    parser.set_defaults(run=bench)
    studies = parser.add_subparsers(metavar="STUDY", title="other studies, each with --help", required=False)
    for name, (module, what) in _STUDIES.items():
        study = studies.add_parser(name, help=what)
        import_module(f".{module}", __package__).add_arguments(study)


def bench(options: argparse.Namespace) -> None:
    """Run the command."""
    _require_writable(options)
    done = stored_outcomes.read(options.source) if options.source else _measured(options)
    _show(done, options.details)
    if options.json:
        write_json(options.json, stored_outcomes.as_json(done))
    if options.plot:
        cost_figure.cost(options.plot, done)
    if options.report:
        report_folder.write(options.report, done)
    for target in filter(None, (options.json, options.plot, options.report)):
        print(f"\nwritten: {target}")


def _require_writable(options: argparse.Namespace) -> None:
    """Find files that cannot be written before anything is measured."""
    require_writable(options.json)
    require_writable(options.plot, PLOTS)
    pictures = report_folder.has_pictures(options.report)
    (require_writable_folder if pictures else require_writable)(options.report)
    if options.plot or pictures:
        cost_figure.require()


def _measured(options: argparse.Namespace) -> stored_outcomes.Run:
    """Run the contests, with a progress line on a terminal."""
    busy = load() or 0.0
    if busy > 0.5:
        print(f"other programs are running (load {busy}): ratios are unreliable\n", file=sys.stderr)
    seconds = options.seconds or (0.15 if options.quick else 1.0)
    cells = plan(options.only, options.dtype, options.spectrum, options.quick)
    return stored_outcomes.here(run_contests(cells, seconds, sys.stderr if sys.stderr.isatty() else None), seconds)


def _show(done: stored_outcomes.Run, details: bool) -> None:
    print(done.headline, "", table.as_table(done.outcomes), "", table.EXPLANATION, "", sep="\n")
    found = rows(done.outcomes)
    print(table.summary(found), *(f"  {said}" for said in table.shortfalls(found)), sep="\n")
    if details:
        print("", every_contestant.details(done.outcomes), "", every_contestant.LEGEND, sep="\n")
    for note in dict.fromkeys(f"{e.name}: {e.note}" for o in done.outcomes for e in o.entries if e.note):
        print(note)


def _some(known: Any) -> Callable[[str], tuple[str, ...]]:
    """Reader of names from ``known``, separated by commas."""

    def names(text: str) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(text.split(",")))
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(known)}, got {', '.join(unknown)!r}")
        return chosen

    return names


def _positive(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number of seconds, got {text!r}")
    return seconds
