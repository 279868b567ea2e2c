"""All sizes, dtypes and spectra, compared with the goals of the project; writes JSON and a plot."""

from __future__ import annotations

import argparse
from pathlib import Path

from spectralgrad.io.files import write_json

from . import as_json, goals, sweep
from . import run as hold_all
from .cases import QUICK, SIZES, SPECTRA
from .command import plan, show
from .figures import cost, require

FOLDER = Path("bench-results")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the study."""
    parser.description = __doc__
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the results (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each cell (default: 3)")
    parser.add_argument("--quick", action="store_true", help="Wishart and graded spectra at four sizes only")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Measure, print the tables and the goals, write bench.json, cost.png and goals.txt."""
    require()
    options.out.mkdir(parents=True, exist_ok=True)
    spectra, sizes = (("wishart", "graded"), QUICK) if options.quick else (tuple(SPECTRA), tuple(SIZES))
    outcomes = show(plan(spectra=spectra, sizes=sizes), options.seconds)
    outcomes += hold_all([(name, case) for name in ("eigh", "inv_sqrt") for case in sweep()], min(options.seconds, 1.0))
    reached = goals.as_table(outcomes)
    print("", reached, sep="\n")
    (options.out / "goals.txt").write_text(reached + "\n", encoding="utf-8")
    write_json(options.out / "bench.json", as_json(outcomes, options.seconds))
    cost(options.out / "cost.png", outcomes)
    print(f"\nwritten: bench.json, cost.png and goals.txt in {options.out}")
