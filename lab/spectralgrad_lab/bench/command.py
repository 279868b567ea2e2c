"""``spectralgrad bench``: its options, and the run they describe."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from spectralgrad.io.files import require_folder, write_json

from ..machine import load
from . import figures, report
from .cases import DTYPES, QUICK, SIZES, SPECTRA, Case, features, grid, sweep, wide
from .contests import CONTESTS, Outcome, run

_DESCRIPTION = """\
Time this library against torch.linalg, plain autograd, Newton-Schulz with 5 and 10 steps and installed peers.
Results are checked against float64 references first: what claims to be exact and is not is reported as wrong and
not timed. Contestants take turns, the least time of many counts, and torch runs at the better of one thread and
all. The figures are ratios; on a busy machine give them more time with --seconds."""
_EXAMPLES = """\
examples:
  spectralgrad bench                                  the whole table, about two minutes
  spectralgrad bench --quick                          fewer sizes, about 20 seconds
  spectralgrad bench --only eigh --dtype float64 --spectrum graded,clustered
  spectralgrad bench --json bench.json --plot bench.png
  spectralgrad bench layers                           one of the studies"""


_STUDIES = {
    "grid": ("whole_grid", "all sizes and spectra, with the goals, JSON and images"),
    "layers": ("layers", "the layers against batch normalisation"),
    "treatments": ("treatment_cost", "what NOG, OLR and the monitor add to a training step"),
    "condition-curves": ("condition_curves", "condition numbers over training under each treatment"),
    "renewed": ("renewed_statistics", "the networks of a comparison, tested with renewed statistics"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command, and its studies."""
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--quick", action="store_true", help="fewer sizes, less time for each: about 20 s")
    add("--only", type=_some(CONTESTS), metavar="NAME[,NAME]", help=f"of {', '.join(CONTESTS)} (default: all)")
    add(
        "--dtype",
        type=_some(DTYPES),
        metavar="NAME[,NAME]",
        help="float32, float64 (default: both for eigh, float32 for inv_sqrt; covariance and polar are float32)",
    )
    add(
        "--spectrum",
        type=_some(SPECTRA),
        default=("wishart",),
        metavar="NAME[,NAME]",
        help=f"of {', '.join(SPECTRA)}, for eigh and inv_sqrt (default: wishart)",
    )
    add("--seconds", type=_positive, metavar="S", help="timing of each cell (default: 2.5; with --quick 0.4)")
    add("--json", type=Path, metavar="FILE", help="also write times, errors, ratios and the machine as JSON")
    add(
        "--plot",
        type=Path,
        metavar="FILE",
        help="also measure batches that grow and draw cost against d and B (png, svg or pdf)",
    )
    parser.set_defaults(run=bench)
    studies = parser.add_subparsers(metavar="STUDY", title="other studies, each with --help", required=False)
    for name, (module, what) in _STUDIES.items():
        study = studies.add_parser(name, help=what)
        import_module(f".{module}", __package__).add_arguments(study)


def bench(options: argparse.Namespace) -> None:
    """Do what the options say."""
    for target in (options.json, options.plot):
        require_folder(target)
    if options.plot:
        figures.require()
    seconds = options.seconds or (0.4 if options.quick else 2.5)
    cells = plan(options.only, options.dtype, options.spectrum, QUICK if options.quick else tuple(SIZES))
    outcomes = show(cells, seconds)
    if options.plot:
        dtype, spectrum = (options.dtype or ("float32",))[0], options.spectrum[0]
        growing = [(name, case) for name in _square(options.only) for case in sweep(dtype, spectrum)]
        outcomes += run(growing, min(seconds, 1.0), _terminal())
        figures.cost(options.plot, outcomes, dtype, spectrum)
        print(f"\ndrawn: {options.plot}")
    if options.json:
        write_json(options.json, report.as_json(outcomes, seconds))
        print(f"\nwritten: {options.json}")


def show(cells: list[tuple[str, Case]], seconds: float) -> list[Outcome]:
    """Hold the contests with a progress line on a terminal and print the tables."""
    busy = load() or 0.0
    if busy > 0.5:
        print(f"other programs are running (load {busy}): ratios will be off, threads suffer most\n", file=sys.stderr)
    outcomes = run(cells, seconds, _terminal())
    print(report.headline(), "", report.as_table(outcomes), "", report.LEGEND, sep="\n")
    for note in dict.fromkeys(f"{e.name}: {e.note}" for o in outcomes for e in o.entries if e.note):
        print(note)
    return outcomes


def plan(
    only: tuple[str, ...] | None = None,
    dtypes: tuple[str, ...] | None = None,
    spectra: tuple[str, ...] = ("wishart",),
    sizes: tuple[int, ...] = tuple(SIZES),
) -> list[tuple[str, Case]]:
    """The contests and cases of a run; without arguments those of the project's table of goals.

    Example:
        >>> len(plan()), len(plan(only=("polar",)))
        (28, 1)
    """
    cases = {
        "eigh": lambda: grid(dtypes or tuple(DTYPES), spectra, sizes),
        "inv_sqrt": lambda: grid(dtypes or ("float32",), spectra, sizes),
        "covariance": features,
        "polar": wide,
    }
    return [(name, case) for name in only or CONTESTS for case in cases[name]()]


def _square(only: tuple[str, ...] | None) -> list[str]:
    return [name for name in ("eigh", "inv_sqrt") if name in (only or CONTESTS)]


def _terminal() -> Any:
    return sys.stderr if sys.stderr.isatty() else None


def _some(known: Any) -> Callable[[str], tuple[str, ...]]:
    """Reads names from ``known`` with commas between them."""

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
