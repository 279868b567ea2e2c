"""Contests between implementations: results are checked first, then those that passed are timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

import torch
from torch import Tensor

from spectralgrad import covariance_sqrt, eigh, matrix_inv_sqrt, polar
from spectralgrad.diagnostics.other_implementations import installed_peers, torch_autograd

from . import accuracy, timing
from .accuracy import Judge, Results
from .cases import Case, matrices
from .rivals import newton_schulz, plain_covariance


@dataclass(frozen=True)
class Contestant:
    """One implementation in a contest.

    Args:
        name: as in the tables.
        run: computes and returns the result that is checked; all of it is timed.
        ours: runs with torch's thread count; others with the best of :func:`timing.thread_counts`.
        exact: claims full accuracy, so an inaccurate result is wrong and is not timed. The others (iterations,
            truncated series, autograd near ties, other libraries) are timed, and their error is reported.
    """

    name: str
    run: Callable[[], Results]
    ours: bool = False
    exact: bool = False


@dataclass(frozen=True)
class Contest:
    """Contestants that compute the same thing on one case, and the check of their results."""

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

    def ratio(self, ours: str, rival: str) -> float | None:
        """The rival's time divided by ours; None if either was not timed."""
        mine, other = self[ours].timing, self[rival].timing
        return None if mine is None or other is None else other.seconds / mine.seconds


def run(plan: Iterable[tuple[str, Case]], seconds: float = 1.0, progress: TextIO | None = None) -> list[Outcome]:
    """Run contests.

    Args:
        plan: names in ``CONTESTS``, each with a case.
        seconds: time for each contest; every contestant runs at least twice.
        progress: a stream for a progress line, or None.

    Example:
        >>> (outcome,) = run([("eigh", Case(2, 3, torch.float32))], seconds=0.01)
        >>> [entry.name for entry in outcome.entries if entry.right]
        ['ours', 'torch']
    """
    plan, outcomes = list(plan), []
    for count, (name, case) in enumerate(plan):
        if progress is not None:
            line = f"{count:3d}/{len(plan)}  {name} {case.label} {case.precision} {case.spectrum}"
            print(f"\r{line:<70}", end="", file=progress, flush=True)
        with timing.thread_count(1):  # the references need no speed, and one thread is not disturbed by other programs
            contest = CONTESTS[name](case)
        outcomes.append(hold(contest, seconds))
    if progress is not None:
        print(f"\r{'':70}\r", end="", file=progress, flush=True)
    return outcomes


def hold(contest: Contest, seconds: float) -> Outcome:
    """Check all contestants, then time those that passed."""
    judged = {contestant.name: _judged(contestant, contest.judge) for contestant in contest.contestants}
    ours, theirs = (torch.get_num_threads(),), timing.thread_counts()
    jobs = {
        c.name: (c.run, ours if c.ours else theirs)
        for c in contest.contestants
        if not judged[c.name].note and (judged[c.name].right or not c.exact)
    }
    times = timing.race(jobs, seconds)
    entries = (Entry(e.name, e.ours, e.error, e.right, times.get(e.name), e.note) for e in judged.values())
    return Outcome(contest.name, contest.case, tuple(entries))


def _judged(contestant: Contestant, judge: Judge) -> Entry:
    try:
        results = contestant.run()
        with timing.thread_count(1):
            verdict = judge(results)
    except Exception as problem:  # an error of a contestant is its result, whatever it is
        note = f"{type(problem).__name__}: {problem}"
        return Entry(contestant.name, contestant.ours, float("nan"), False, None, note)
    return Entry(contestant.name, contestant.ours, verdict.error, verdict.right, None)


def _eigh(case: Case) -> Contest:
    A = matrices(case)
    contestants = [
        Contestant("ours", lambda: tuple(eigh(A)), ours=True, exact=True),
        Contestant("torch", lambda: torch.linalg.eigh(A), exact=True),
    ]
    return Contest("eigh", case, contestants, accuracy.eigenpairs(A))


def _inv_sqrt(case: Case) -> Contest:
    A = matrices(case, definite=True)
    G = _cotangent(A)
    contestants = [
        Contestant("exact", _both_ways(matrix_inv_sqrt, A, G), ours=True, exact=True),
        Contestant("taylor", _both_ways(_by_taylor, A, G), ours=True),
        Contestant("autograd", _both_ways(torch_autograd("inv_sqrt"), A, G)),
        Contestant("ns5", _both_ways(lambda X: newton_schulz(X, 5, inverse=True), A, G)),
        Contestant("ns10", _both_ways(lambda X: newton_schulz(X, 10, inverse=True), A, G)),
        *(Contestant(name, _both_ways(root, A, G)) for name, root in installed_peers("inv_sqrt").items()),
    ]
    return Contest("inv_sqrt", case, contestants, accuracy.inverse_root(A, G))


def _by_taylor(A: Tensor) -> Tensor:
    return matrix_inv_sqrt(A, method="svd-taylor")


def _covariance(case: Case) -> Contest:
    X = matrices(case)
    G = _cotangent(X @ X.mT)

    def iterated(X: Tensor) -> Tensor:
        return newton_schulz(plain_covariance(X), 5)

    contestants = [
        Contestant("exact", _both_ways(covariance_sqrt, X, G), ours=True, exact=True),
        Contestant("ns5", _both_ways(iterated, X, G)),
    ]
    return Contest("covariance", case, contestants, accuracy.covariance_root(X, G))


def _polar(case: Case) -> Contest:
    M = matrices(case)

    def by_svd() -> Results:
        U, _, Vh = torch.linalg.svd(M, full_matrices=False)
        return (U @ Vh,)

    contestants = [
        Contestant("ours", lambda: (polar(M),), ours=True, exact=True),
        Contestant("svd", by_svd, exact=True),
    ]
    return Contest("polar", case, contestants, accuracy.polar_factor(M))


def _cotangent(like: Tensor) -> Tensor:
    G = torch.randn(like.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (G + G.mT).to(like.dtype) / 2


def _both_ways(function: Callable[[Tensor], Tensor], X: Tensor, G: Tensor) -> Callable[[], Results]:
    """Forward and backward pass: the value, and the gradient of ⟨value, G⟩."""
    leaf = X.clone().requires_grad_()

    def both() -> Results:
        value = function(leaf)
        return value.detach(), *torch.autograd.grad(value, leaf, G)

    return both


CONTESTS: dict[str, Callable[[Case], Contest]] = {
    "eigh": _eigh,
    "inv_sqrt": _inv_sqrt,
    "covariance": _covariance,
    "polar": _polar,
}
