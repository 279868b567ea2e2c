"""The command ``spectralgrad fuzz``: what it tests, progress and output."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import asdict
from itertools import count
from typing import Any

import torch

from ...io.files import require_writable, write_json
from ..table import number as short
from ..table import render
from .campaign import Campaign, Failure
from .cases import Case
from .operations import OPERATIONS

SHOWN = 20  # kinds of failures printed


def fuzz(options: argparse.Namespace) -> int:
    """Run the campaign and return the exit status: 0, or 1 if a check failed."""
    if options.operation == "list":
        print("\n".join(OPERATIONS))
        return 0
    operations, methods = _operations(options), _methods(options)
    require_writable(options.json)
    campaign = Campaign(operations, methods, options.seed)
    numbers: Iterable[int] = count()
    if options.case:
        seed, number, *form = options.case
        campaign, numbers = Campaign(operations, methods, seed, *form), [number]
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


def _operations(options: argparse.Namespace) -> tuple[str, ...]:
    """Operations from comma-separated names; ``matrix_power`` selects all four of its variants."""
    if options.operation is None:
        return tuple(OPERATIONS)
    wanted = options.operation.split(",")
    known = {*OPERATIONS, *(name.split()[0] for name in OPERATIONS)}
    _refuse_unknown(options, "operation", wanted, known, OPERATIONS)
    return tuple(name for name in OPERATIONS if name in wanted or name.split()[0] in wanted)


def _methods(options: argparse.Namespace) -> tuple[str, ...]:
    chosen = tuple(options.method.split(",")) if options.method is not None else ()
    known = dict.fromkeys(m for operation in OPERATIONS.values() for m in operation.methods if m)
    _refuse_unknown(options, "method", chosen, known, known)
    return chosen


def _refuse_unknown(
    options: argparse.Namespace, flag: str, given: Iterable[str], known: Collection[str], listed: Iterable[str]
) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        options.parser.error(f"argument --{flag}: expected names from {', '.join(listed)}, got {', '.join(unknown)!r}")
