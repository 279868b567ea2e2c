"""The command ``spectralgrad fuzz``: its options, progress and output."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from itertools import count
from typing import Any

import torch

from ...io.files import path_argument, require_writable, write_json
from ..table import number as short
from ..table import render
from .campaign import Campaign, Failure
from .cases import Case
from .operations import OPERATIONS

_DESCRIPTION = """\
Test every operation and method on random matrices of difficult families: rank-deficient, repeated, clustered, graded,
denormal, huge, exact ties, Laplacians, glued Wilkinson matrices, fewer positions than channels. Results must meet
LAPACK's error bounds, gradients must be finite and Hermitian, and gradients of the method exact must agree with closed
forms in double precision. The exit status is 1 if a check failed."""
_EXAMPLES = """\
examples:
  spectralgrad fuzz                                    20,000 matrices
  spectralgrad fuzz --matrices 1000000 --json fuzz.json
  spectralgrad fuzz --operation eigh,svd --seconds 60
  spectralgrad fuzz --operation matrix_sqrt --method exact --case 0:115     repeat one case"""
SHOWN = 20  # kinds of failures printed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add(
        "--matrices",
        type=_whole(1),
        metavar="N",
        help="stop after this many matrices (default: 20000; no limit with --seconds)",
    )
    add("--seconds", type=float, metavar="S", help="stop after this time (default: no limit)")
    add("--seed", type=_whole(0), default=0, metavar="K", help="seed of the random matrices (default: 0)")
    add("--operation", type=_operations, default=tuple(OPERATIONS), metavar="NAME[,NAME]", help=_names())
    add("--method", type=_methods, default=(), metavar="NAME[,NAME]", help="methods to test (default: all)")
    add("--case", type=_case, metavar="SEED:NUMBER[:SIZE:BATCH]", help="repeat one case, as printed with a failure")
    add("--json", type=path_argument, metavar="FILE", help="also write the table and every failure as JSON")
    parser.set_defaults(run=fuzz)


def fuzz(options: argparse.Namespace) -> int:
    """Run the campaign and return the exit status: 0, or 1 if a check failed."""
    require_writable(options.json)
    campaign = Campaign(options.operation, options.method, options.seed)
    numbers: Iterable[int] = count()
    if options.case:
        seed, number, *form = options.case
        campaign, numbers = Campaign(options.operation, options.method, seed, *form), [number]
    limit = options.matrices or (None if options.seconds or options.case else 20000)
    started = time.monotonic()
    try:
        campaign.run(numbers, _Watch(campaign, limit, options.seconds, started))
    except KeyboardInterrupt:
        print("\nstopped; results so far:", file=sys.stderr)
    seconds = time.monotonic() - started
    show(campaign, seconds)
    if options.json:
        write_json(options.json, as_json(campaign, seconds))
        print(f"\nwritten: {options.json}")
    return 1 if campaign.failures else 0


class _Watch:
    """Called after each case: prints new failures and, on a terminal, a progress line; True at the limit."""

    def __init__(self, campaign: Campaign, matrices: int | None, seconds: float | None, started: float) -> None:
        self.campaign, self.matrices, self.seconds, self.started = campaign, matrices, seconds, started
        self.seen: Counter[tuple[str, str, str]] = Counter()
        self.known = dict.fromkeys(OPERATIONS, 0)

    def __call__(self, case: Case) -> bool:
        self._failures()
        done, elapsed = self.campaign.matrices, time.monotonic() - self.started
        if sys.stderr.isatty():
            of = f" of {self.matrices:,}" if self.matrices else ""
            failed = sum(self.seen.values())
            line = f"{done:,}{of} matrices, {elapsed:.0f} s, {failed} failed  {case}"
            print(f"\r{line:<100.100}", end="", file=sys.stderr, flush=True)
        full = self.matrices is not None and done >= self.matrices
        over = full or (self.seconds is not None and elapsed >= self.seconds)
        if over and sys.stderr.isatty():
            print(f"\r{'':100}\r", end="", file=sys.stderr, flush=True)
        return over

    def _failures(self) -> None:
        """Print the first failure of each operation, method and check, at most 20 in all."""
        for name, tally in self.campaign.tallies.items():
            for failure in tally.failures[self.known[name] :]:
                kind = (failure.operation, failure.method, failure.check)
                self.seen[kind] += 1
                if self.seen[kind] == 1 and len(self.seen) <= SHOWN:
                    print(f"\r{failure}\n  repeat with: {failure.command}", flush=True)
            self.known[name] = len(tally.failures)


def show(campaign: Campaign, seconds: float) -> None:
    """Print the table of results."""
    rows = [
        [name, f"{t.matrices:,}", short(t.ratio), short(t.gradient), str(len({_matrix(f) for f in t.failures}))]
        for name, t in campaign.tallies.items()
    ]
    print(f"{campaign.matrices:,} matrices in {seconds:.0f} s, seed {campaign.seed}\n")
    print(render(["operation", "matrices", "worst ratio", "worst gradient", "failed"], rows))
    print("\nratio: residual in units of n·u‖A‖ (limit 30); gradient: error of exact in units of u·κ (limit 100)")
    kinds = Counter((f.operation, f.method, f.check) for f in campaign.failures)
    for (operation, method, check), failed in kinds.most_common(SHOWN):
        print(f"failed: {operation}{f' by {method}' if method else ''}: {check} ({failed})")


def as_json(campaign: Campaign, seconds: float) -> dict[str, Any]:
    """The table and every failure, ready for json.dump."""
    table = [
        {
            "operation": name,
            "matrices": t.matrices,
            "ratio": _finite(t.ratio),
            "gradient": _finite(t.gradient),
            "failures": [{**asdict(f), "command": f.command} for f in t.failures],
        }
        for name, t in campaign.tallies.items()
    ]
    head = {"torch": torch.__version__, "seed": campaign.seed, "matrices": campaign.matrices}
    return {**head, "seconds": round(seconds, 1), "operations": table}


def _matrix(failure: Failure) -> tuple[int, int]:
    return failure.address[1], failure.index


def _finite(x: float) -> float | None:
    return x if x < float("inf") else None


def _names() -> str:
    return f"operations to test: {', '.join(OPERATIONS)} (default: all)"


def _operations(text: str) -> tuple[str, ...]:
    """Operations from comma-separated names; ``matrix_power`` selects all four of its variants."""
    wanted = text.split(",")
    chosen = tuple(name for name in OPERATIONS if name in wanted or name.split()[0] in wanted)
    unknown = [name for name in wanted if name not in OPERATIONS and name not in {n.split()[0] for n in OPERATIONS}]
    if unknown:
        raise argparse.ArgumentTypeError(f"expected names from {', '.join(OPERATIONS)}, got {', '.join(unknown)!r}")
    return chosen


def _methods(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    known = dict.fromkeys(m for operation in OPERATIONS.values() for m in operation.methods if m)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"expected names from {', '.join(known)}, got {', '.join(unknown)!r}")
    return chosen


def _case(text: str) -> tuple[int, ...]:
    parts = text.split(":")
    if len(parts) not in (2, 4) or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"expected SEED:NUMBER such as 0:115, got {text!r}")
    return tuple(map(int, parts))


def _whole(least: int) -> Any:
    def whole(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"expected an integer ≥ {least}, got {text!r}")
        return value

    return whole
