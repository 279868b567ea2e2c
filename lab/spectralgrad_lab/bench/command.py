"""The command ``spectralgrad bench``."""

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
Compare the speed of this library with torch.linalg, plain autograd, Newton-Schulz with 5 and 10 steps, and other
installed libraries. Results are first checked against float64 references: a method that claims to be exact and is not
is reported as wrong and not timed. Methods run alternately, the minimum of many times is reported, and torch uses
whichever is faster of one thread and all. On a busy machine, increase --seconds."""
_EXAMPLES = """\
examples:
  spectralgrad bench                                  the whole table, about two minutes
  spectralgrad bench --quick                          fewer sizes, about 20 seconds
  spectralgrad bench --only eigh --dtype float64 --spectrum graded,clustered
  spectralgrad bench --json bench.json --plot bench.png
  spectralgrad bench layers                           one of the studies"""


_STUDIES = {
    "grid": ("whole_grid", "all sizes and spectra, compared with the goals; writes JSON and plots"),
    "layers": ("layers", "the layers compared with batch normalization"),
    "group-whitening": ("group_whitening", "whitening as in the translation network of TPAMI 2021, by several methods"),
    "treatments": ("treatment_cost", "the time that NOG, OLR and the monitor add to a training step"),
    "condition-curves": ("condition_curves", "condition numbers over training under each treatment"),
    "renewed": ("renewed_statistics", "the networks of a comparison, tested with recomputed running statistics"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``spectralgrad bench`` and of its studies."""
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--quick", action="store_true", help="fewer sizes and less time for each: about 20 s")
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
    add("--seconds", type=_positive, metavar="S", help="time for each cell (default: 2.5; with --quick 0.4)")
    add("--json", type=Path, metavar="FILE", help="also write times, errors, ratios and the machine as JSON")
    add(
        "--plot",
        type=Path,
        metavar="FILE",
        help="also measure growing batches and plot the cost against d and B (png, svg or pdf)",
    )
    parser.set_defaults(run=bench)
    studies = parser.add_subparsers(metavar="STUDY", title="other studies, each with --help", required=False)
    for name, (module, what) in _STUDIES.items():
        study = studies.add_parser(name, help=what)
        import_module(f".{module}", __package__).add_arguments(study)


def bench(options: argparse.Namespace) -> None:
    """Run the command."""
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
        print(f"\nplotted: {options.plot}")
    if options.json:
        write_json(options.json, report.as_json(outcomes, seconds))
        print(f"\nwritten: {options.json}")


def show(cells: list[tuple[str, Case]], seconds: float) -> list[Outcome]:
    """Run the contests, with a progress line on a terminal, and print the tables."""
    busy = load() or 0.0
    if busy > 0.5:
        print(f"other programs are running (load {busy}): ratios are unreliable\n", file=sys.stderr)
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
