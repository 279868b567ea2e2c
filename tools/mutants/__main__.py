"""Mutation tests of the library's mathematics: make a small mistake in a formula and check that a test fails.

    python -m tools.mutants                             # a sample of mistakes per file, the same each time
    python -m tools.mutants autograd nn/functional      # a sample in these rooms
    python -m tools.mutants --sample 0 square_root.py   # every mistake in one file
    python -m tools.mutants --again --budget 60         # the mutants that survived earlier runs, with more tests
    python -m tools.mutants --report                    # the outcomes of all runs

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
from pathlib import Path

from .mistakes import Mutant, mutants
from .runner import Runner, collect, stored_outcomes
from .settings import EQUIVALENT, ROOT, parts


def main() -> None:
    """Choose mutants, run them, and print the score of each room."""
    options = _options()
    outcomes = stored_outcomes()
    sampled = []
    for part in parts():
        chosen = [m for path in part.chosen(options.files) for m in _sample(path, options.sample, options.seed)]
        sampled += chosen
        to_run = [m for m in chosen if m.key not in EQUIVALENT and (not options.again or not outcomes.get(m.key))]
        to_run.sort(key=lambda m: (not m.codes(), m.key in outcomes))  # first what forks can run, then new ones
        if to_run and not options.report:
            collect(Runner(part, to_run, options.budget, outcomes), part.tests)
    rooms: dict[str, list[Mutant]] = {}
    for mutant in sampled:
        rooms.setdefault(str(Path(mutant.file).relative_to(ROOT).parent), []).append(mutant)
    for name, chosen in (*rooms.items(), ("all", sampled)):
        _report(name, chosen, outcomes)
    for mutant in sampled:
        if mutant.key not in EQUIVALENT and outcomes.get(mutant.key) == "":
            print("survived", mutant.key)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="files or rooms, such as square_root.py or autograd (default: all)")
    parser.add_argument("--sample", type=int, default=2, help="mutants per file, 0 for all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (default: %(default)s)")
    parser.add_argument("--again", action="store_true", help="run only mutants that no earlier run detected")
    parser.add_argument("--report", action="store_true", help="run nothing, print the outcomes of earlier runs")
    parser.add_argument("--budget", type=float, default=8.0, help="seconds of tests for each mutant (default: 8)")
    return parser.parse_args()


def _sample(path: Path, size: int, seed: int) -> list[Mutant]:
    return sorted(mutants(path), key=lambda m: _lot(m, seed))[: size or None]


def _lot(mutant: Mutant, seed: int) -> str:
    """A hash of the mutant that orders the sample. It does not change if the file is edited elsewhere."""
    return hashlib.sha256(f"{seed} {mutant.key}".encode()).hexdigest()


def _report(name: str, chosen: list[Mutant], outcomes: dict[str, str]) -> None:
    same = sum(m.key in EQUIVALENT for m in chosen)
    run = [m for m in chosen if m.key not in EQUIVALENT and m.key in outcomes]
    killed = sum(bool(outcomes[m.key]) for m in run)
    score = f"{killed / len(run):.1%}" if run else "-"
    print(f"{name:44} sampled {len(chosen):4}  equivalent {same:3}  run {len(run):4}  killed {killed:4}  {score}")


if __name__ == "__main__":
    main()
