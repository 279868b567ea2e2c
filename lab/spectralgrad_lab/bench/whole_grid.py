"""``make bench``: the whole grid, with JSON and pictures. See README.md in this folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from spectralgrad_lab.bench import as_json, run, sweep
from spectralgrad_lab.bench.cases import QUICK, SIZES, SPECTRA
from spectralgrad_lab.bench.command import plan, show
from spectralgrad_lab.bench.figures import cost, require
from spectralgrad.io.files import write_json

from . import goals

FOLDER = Path(__file__).parent / "results"


def main() -> None:
    """Measure, print the tables and the goals, write bench.json, cost.png and goals.txt."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the results (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="timing of each cell (default: 3)")
    parser.add_argument("--quick", action="store_true", help="Wishart and graded spectra at four sizes only")
    options = parser.parse_args()
    require()
    options.out.mkdir(parents=True, exist_ok=True)
    spectra, sizes = (("wishart", "graded"), QUICK) if options.quick else (tuple(SPECTRA), tuple(SIZES))
    outcomes = show(plan(spectra=spectra, sizes=sizes), options.seconds)
    outcomes += run([(name, case) for name in ("eigh", "inv_sqrt") for case in sweep()], min(options.seconds, 1.0))
    reached = goals.as_table(outcomes)
    print("", reached, sep="\n")
    (options.out / "goals.txt").write_text(reached + "\n", encoding="utf-8")
    write_json(options.out / "bench.json", as_json(outcomes, options.seconds))
    cost(options.out / "cost.png", outcomes)
    print(f"\nwritten: bench.json, cost.png and goals.txt in {options.out}")


if __name__ == "__main__":
    main()
