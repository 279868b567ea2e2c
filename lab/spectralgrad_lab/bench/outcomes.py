"""A contest between implementations: results are checked first, then those that passed are timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import timing
from .accuracy import Judge, Results, Verdict
from .cases import Case


@dataclass(frozen=True)
class Contestant:
    """One implementation in a contest.

    Args:
        name: as in the tables.
        run: computes the result that is checked; all of it is timed.
        ours: runs with torch's thread count; others with the best of :func:`timing.thread_counts`.
        exact: claims full accuracy, so an inaccurate result is wrong and is not timed. The others (iterations,
            truncated series, autograd near ties, other libraries) are timed, and their error is reported.
        own_threads: has threads of its own, so torch's count makes no difference and is not varied.
        read: makes tensors of what ``run`` returns, for the check; not timed.
    """

    name: str
    run: Callable[[], Any]
    ours: bool = False
    exact: bool = False
    own_threads: bool = False
    read: Callable[[Any], Results] = tuple


@dataclass(frozen=True)
class Contest:
    """Contestants that compute the same thing on one case, and the check of what :func:`checked` selects."""

    name: str
    case: Case
    contestants: Sequence[Contestant]
    judge: Judge


@dataclass(frozen=True)
class Entry:
    """The outcome of a contestant: its error, whether that is within rounding, and its time if it was timed."""

    name: str
    ours: bool
    error: float
    right: bool
    timing: timing.Timing | None
    note: str = ""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a contest."""

    contest: str
    case: Case
    entries: tuple[Entry, ...]

    def __getitem__(self, name: str) -> Entry:
        return next(entry for entry in self.entries if entry.name == name)

    def __contains__(self, name: str) -> bool:
        return any(entry.name == name for entry in self.entries)

    def ratio(self, ours: str, rival: str) -> float | None:
        """The rival's time divided by ours; None if either was not timed."""
        mine, other = self[ours].timing, self[rival].timing
        return None if mine is None or other is None else other.seconds / mine.seconds


def checked(case: Case) -> slice | torch.Tensor:
    """The positions in the batch whose results are checked: all, or as many as were drawn, evenly spaced.

    Example:
        >>> checked(Case(5, 3, torch.float32))
        slice(None, None, None)
        >>> checked(Case(4096, 256, torch.float32))[[0, 1, -1]]
        tensor([   0,   65, 4095])
    """
    if case.distinct == case.batch:
        return slice(None)
    return torch.linspace(0, case.batch - 1, case.distinct, dtype=torch.float64).round().long()


def hold(contest: Contest, seconds: float) -> Outcome:
    """Check all contestants, then time those that passed."""
    judged = {contestant.name: _judged(contestant, contest) for contestant in contest.contestants}
    found, counts = (torch.get_num_threads(),), timing.thread_counts()
    jobs = {
        c.name: (c.run, found if c.ours or c.own_threads else counts)
        for c in contest.contestants
        if not judged[c.name].note and (judged[c.name].right or not c.exact)
    }
    times = timing.race(jobs, seconds)
    entries = (Entry(e.name, e.ours, e.error, e.right, times.get(e.name), e.note) for e in judged.values())
    return Outcome(contest.name, contest.case, tuple(entries))


def _judged(contestant: Contestant, contest: Contest) -> Entry:
    try:
        results = contestant.read(contestant.run())
        with timing.thread_count(1):
            verdict = _verdict(results, contest)
    except Exception as problem:  # an error of a contestant is its result, whatever it is
        note = f"{type(problem).__name__}: {problem}"
        return Entry(contestant.name, contestant.ours, float("nan"), False, None, note)
    return Entry(contestant.name, contestant.ours, verdict.error, verdict.right, None)


def _verdict(results: Results, contest: Contest) -> Verdict:
    """What the judge says; results that are not checked must at least be finite."""
    if contest.case.distinct < contest.case.batch and not all(bool(x.isfinite().all()) for x in results):
        return Verdict(float("nan"), False)
    picked = checked(contest.case)
    return contest.judge(tuple(x[picked] for x in results))
