"""Counters of solver calls, decomposed matrices and fallbacks."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SolverReport:
    """Counts since the start of the process or the last :func:`reset_report`.

    Attributes:
        calls: number of solver calls.
        matrices: number of matrices passed to a solver.
        fallbacks: for each fallback, the number of matrices that it decomposed after the solver had failed.
        failures: number of matrices that no fallback could decompose.

    Example:
        >>> SolverReport(calls=2, matrices=64, fallbacks={"float64": 1}, failures=0)
        2 solver calls, 64 matrices; rescued: 1 by float64; failed: 0
    """

    calls: int = 0
    matrices: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict)
    failures: int = 0

    def __repr__(self) -> str:
        rescued = ", ".join(f"{n} by {rung}" for rung, n in self.fallbacks.items()) or "none"
        return f"{self.calls} solver calls, {self.matrices} matrices; rescued: {rescued}; failed: {self.failures}"


class _Counts:
    """The mutable counters behind :func:`report`; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = self._matrices = self._failures = 0
        self._rungs: Counter[str] = Counter()

    def call(self, matrices: int) -> None:
        with self._lock:
            self._calls += 1
            self._matrices += matrices

    def rescued(self, rung: str) -> None:
        with self._lock:
            self._rungs[rung] += 1

    def failed(self) -> None:
        with self._lock:
            self._failures += 1

    def snapshot(self, reset: bool = False) -> SolverReport:
        with self._lock:
            result = SolverReport(self._calls, self._matrices, dict(self._rungs), self._failures)
            if reset:
                self._calls = self._matrices = self._failures = 0
                self._rungs.clear()
            return result


counts: _Counts = _Counts()


def report() -> SolverReport:
    """Return the counts of solver calls, matrices, fallbacks and failures so far.

    Example:
        >>> import spectralgrad as sg
        >>> _ = sg.solvers.reset_report()
        >>> _ = sg.eigh(torch.eye(3).expand(5, 3, 3))
        >>> sg.solvers.report()
        1 solver calls, 5 matrices; rescued: none; failed: 0
    """
    return counts.snapshot()


def reset_report() -> SolverReport:
    """Return the counts so far and start again from zero."""
    return counts.snapshot(reset=True)
