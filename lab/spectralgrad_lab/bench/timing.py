"""Comparable times: the minimum of many alternating runs, with the best thread count for each contestant."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from spectralgrad.errors import ArgumentError

from ..machine import set_threads

_BURST = 0.02  # seconds of consecutive calls before the next contestant runs
_ROUNDS = 2  # minimum number of turns for every contestant
_LONG = 2.0  # seconds; a call that takes longer has one turn
_HOPELESS = 1.5  # a thread count slower than the best by this factor in the first turn is dropped

Job = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """The minimum time of a call in seconds, the thread count that reached it, and the number of calls."""

    seconds: float
    threads: int
    calls: int


@contextmanager
def thread_count(count: int | None = None) -> Iterator[None]:
    """Context that sets torch's thread count, if one is given, and restores the previous one.

    Example:
        >>> before = torch.get_num_threads()
        >>> with thread_count(1):
        ...     torch.get_num_threads()
        1
        >>> torch.get_num_threads() == before
        True
    """
    found = torch.get_num_threads()
    try:
        if count is not None:
            set_threads(count, ArgumentError)
        yield
    finally:
        torch.set_num_threads(found)


def thread_counts() -> tuple[int, ...]:
    """The thread counts to try: one, two, and torch's current one."""
    found = torch.get_num_threads()
    return tuple(sorted({1, min(2, found), found}))


def race(jobs: Mapping[str, tuple[Job, tuple[int, ...]]], seconds: float) -> dict[str, Timing]:
    """Run the jobs alternately for about ``seconds`` and return the minimum time of each.

    Args:
        jobs: name → a function without arguments, and the thread counts to try; the best one is reported.
        seconds: total time. Every job has at least two turns; a thread count that is clearly slower has one, and so
            has a call of more than two seconds.

    Returns:
        name → :class:`Timing`.

    Example:
        >>> times = race({"sum": (lambda: sum(range(10)), (1,)), "none": (lambda: None, (1,))}, seconds=0.01)
        >>> times["sum"].calls > 1, times["sum"].threads
        (True, 1)
    """
    if not jobs:
        return {}
    lanes = [(name, job, count) for name, (job, counts) in jobs.items() for count in counts]
    burst = min(_BURST, seconds / (4 * len(lanes)))
    best: dict[str, Timing] = {}
    with thread_count(), _no_collection():
        stop, turn = time.perf_counter() + seconds, 0
        while lanes and (turn < _ROUNDS or time.perf_counter() < stop):
            least = [_turn(name, job, count, burst, best) for name, job, count in lanes]
            if turn == 0:
                lanes = [
                    lane
                    for lane, t in zip(lanes, least, strict=True)
                    if t < min(_LONG, _HOPELESS * best[lane[0]].seconds)
                ]
            lanes = lanes[1:] + lanes[:1]
            turn += 1
    return best


def _turn(name: str, job: Job, count: int, burst: float, best: dict[str, Timing]) -> float:
    torch.set_num_threads(count)
    least, calls = _burst(job, burst)
    best[name] = _better(best.get(name), Timing(least, count, calls))
    return least


def _burst(job: Job, seconds: float) -> tuple[float, int]:
    """The minimum time over consecutive calls for ``seconds``, at least one call."""
    least, calls, stop = float("inf"), 0, time.perf_counter() + seconds
    while calls == 0 or time.perf_counter() < stop:
        start = time.perf_counter()
        job()
        least = min(least, time.perf_counter() - start)
        calls += 1
    return least, calls


def _better(old: Timing | None, new: Timing) -> Timing:
    if old is None:
        return new
    kept = new if new.seconds < old.seconds else old
    return Timing(kept.seconds, kept.threads, old.calls + new.calls)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Context without garbage collection, as in timeit."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
