"""Mutation tests of the library's mathematics: make a small mistake in a formula and check that a test fails.

    python -m tools.mutants                         # a sample of mistakes per file, the same each time
    python -m tools.mutants --sample 0 square_root.py   # every mistake in one file
    python -m tools.mutants --again --budget 60     # the mutants that survived the last run, with more tests

Existing tools start a new process for each mutant, and importing torch and collecting these tests takes 10 to 20
seconds each time. Here the tests are collected once. A mutant is a fork of that process in which the code of a function
is replaced, wherever torch or a decorator refers to that function; no file is changed. For each mutant only tests that
execute its lines are run, starting with those that have detected most mutants, within a time budget. Tests that compile
are excluded (one takes longer than all others together), and tests that start processes cannot detect a mutant. Mutants
that no test can detect are listed in ``settings.toml`` with the reason.
"""

from __future__ import annotations

import argparse
import hashlib
import json

from .mistakes import Mutant, mutants
from .runner import Runner, collect
from .settings import SETTINGS, STORE, files, tests

LAST = STORE / "last.json"


def main() -> None:
    """Choose mutants, run them, and print the score of each file."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__.splitlines()[0])
    parser.add_argument(
        "files", nargs="*", help="files of spectralgrad, such as square_root.py (default: all in settings.toml)"
    )
    parser.add_argument("--sample", type=int, default=10, help="mutants per file, 0 for all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (default: %(default)s)")
    parser.add_argument("--again", action="store_true", help="run only the mutants that survived the last run")
    parser.add_argument("--budget", type=float, default=8.0, help="seconds of tests for each mutant (default: 8)")
    options = parser.parse_args()
    generated = {path: mutants(path) for path in files(options.files)}
    last = json.loads(LAST.read_text(encoding="utf-8")) if options.again else {}
    chosen = []
    for found in generated.values():
        if options.again:
            chosen += [m for m in found if last.get(m.key) == ""]
        else:
            chosen += sorted(found, key=lambda m: _lot(m, options.seed))[: options.sample or None]
    equivalent = {entry["mutant"] for entry in SETTINGS.get("equivalent", [])}
    runner = Runner([m for m in chosen if m.key not in equivalent], options.budget)
    collect(runner, tests())
    LAST.write_text(json.dumps({**last, **runner.outcome}, indent=1), encoding="utf-8")
    for path, found in generated.items():
        _report(path.name, found, [m for m in chosen if m.file == str(path)], equivalent, runner.outcome)
    _report("all", [m for found in generated.values() for m in found], chosen, equivalent, runner.outcome)


def _lot(mutant: Mutant, seed: int) -> str:
    """A hash of the mutant that orders the sample. It does not change if the file is edited elsewhere."""
    return hashlib.sha256(f"{seed} {mutant.key}".encode()).hexdigest()


def _report(
    name: str, found: list[Mutant], chosen: list[Mutant], equivalent: set[str], outcome: dict[str, str]
) -> None:
    same = sum(m.key in equivalent for m in chosen)
    killed = sum(bool(outcome.get(m.key)) for m in chosen)
    counted = len(chosen) - same
    score = f"{killed / counted:.1%}" if counted else "-"
    print(f"{name:20} mutants {len(found):5}  run {len(chosen):5}  equivalent {same:4}  killed {killed:5}  {score}")


if __name__ == "__main__":
    main()
