"""A campaign: runs the operations on one case after another, and keeps measurements and failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from .cases import LARGEST, Case, draw
from .checks import FORWARD
from .families import FAMILIES
from .operations import OPERATIONS, Operation

PI_SIZE = 16  # largest size for power iteration, which takes 19 steps per eigenvector and is slow beyond
NAMED = 8  # maximum number of matrices reported if a batch raises an exception


@dataclass(frozen=True)
class Failure:
    """One matrix that failed one check of one operation."""

    operation: str
    method: str
    check: str
    measure: str
    case: str
    address: tuple[int, int, int, int]
    index: int

    def __str__(self) -> str:
        by = f" by {self.method}" if self.method else ""
        return f"{self.operation}{by}: {self.check}, {self.measure} on {self.case}, matrix {self.index}"

    @property
    def command(self) -> str:
        """The command that reproduces it."""
        method = f" --method {self.method}" if self.method else ""
        address = self.address if self.address[2:] != (LARGEST, 0) else self.address[:2]
        return f'spectralgrad fuzz --operation "{self.operation}"{method} --case {":".join(map(str, address))}'


@dataclass
class Tally:
    """The results of one operation so far."""

    matrices: int = 0
    ratio: float = 0.0
    gradient: float = 0.0
    failures: list[Failure] = field(default_factory=list)


@dataclass
class Campaign:
    """Runs operations and methods on the cases of one seed.

    Every case is passed to every operation that accepts its kind of input. Each time only one method is tested; it
    changes after every round over the families, so that in the end each method has been tested on each family.

    Args:
        operations: names from :data:`OPERATIONS`.
        methods: methods to test; empty for all.
        seed: seed of the random matrices.
        largest: size of the largest matrices; some are three times as large.
        batch: number of matrices in a case; 0 for as many as take some milliseconds.

    Example:
        >>> campaign = Campaign(("eigh",), methods=("svd-pade",), batch=2)
        >>> campaign.run(range(3))
        >>> campaign.tallies["eigh"].matrices, campaign.failures
        (6, [])
    """

    operations: tuple[str, ...] = tuple(OPERATIONS)
    methods: tuple[str, ...] = ()
    seed: int = 0
    largest: int = LARGEST
    batch: int = 0
    matrices: int = 0
    tallies: dict[str, Tally] = field(default_factory=dict)

    @property
    def failures(self) -> list[Failure]:
        """The failures of all operations."""
        return [failure for tally in self.tallies.values() for failure in tally.failures]

    def run(self, numbers: Any, after: Callable[[Case], bool] | None = None) -> None:
        """Run the cases with these numbers. ``after`` is called after each case; if it returns True, the run stops."""
        for number in numbers:
            case = draw(self.seed, number, self.largest, self.batch)
            self.examine(case)
            self.matrices += len(case.matrices)
            if after is not None and after(case):
                return

    def examine(self, case: Case) -> None:
        """Pass one case to every operation that accepts it."""
        prepared: dict[Any, Any] = {}
        for name in self.operations:
            operation = OPERATIONS[name]
            method = self._turn(operation, case.number)
            too_large = method == "pi" and case.matrices.shape[-2] > PI_SIZE
            if case.kind not in operation.kinds or method is None or too_large:
                continue
            if operation.prepare not in prepared:
                prepared[operation.prepare] = operation.prepare(case.matrices)
            self._measure(name, operation, method, case, prepared[operation.prepare])

    def _turn(self, operation: Operation, number: int) -> str | None:
        """The method whose turn it is."""
        served = [m for m in operation.methods if not self.methods or not m or m in self.methods]
        return served[number // len(FAMILIES) % len(served)] if served else None

    def _measure(self, name: str, operation: Operation, method: str, case: Case, prepared: Any) -> None:
        tally = self.tallies.setdefault(name, Tally())
        tally.matrices += len(case.matrices)
        try:
            findings = list(operation.judge(case, prepared, method))
        except Exception as problem:  # any exception is a finding
            tally.failures += self._exceptions(name, operation, method, case, problem)
            return
        for finding in findings:
            failed = finding.failed
            worst = float(finding.measure.nan_to_num(nan=float("inf")).amax()) if len(finding.measure) else 0.0
            if finding.check == "gradient":
                tally.gradient = max(tally.gradient, worst)
            elif finding.limit == FORWARD:
                tally.ratio = max(tally.ratio, worst)
            for index in failed:
                measure = f"{float(finding.measure[index]):.3g} of {finding.limit:g}" if finding.limit > 1 else "no"
                tally.failures.append(self._failure(name, method, finding.check, measure, case, index))

    def _exceptions(
        self, name: str, operation: Operation, method: str, case: Case, problem: Exception
    ) -> Iterator[Failure]:
        """A failure for each matrix that raises on its own, up to ``NAMED``; if none does, for the first matrix."""
        found = list(islice(_culprits(operation, method, case, 0, problem), NAMED))
        for index, error in found or [(0, problem)]:
            where = "" if found else " (only in a batch)"
            yield self._failure(name, method, type(error).__name__, f"{error}{where}", case, index)

    @staticmethod
    def _failure(name: str, method: str, check: str, measure: str, case: Case, index: int) -> Failure:
        return Failure(name, method, check, measure, str(case), case.address, index)


def _culprits(
    operation: Operation, method: str, case: Case, first: int, problem: Exception
) -> Iterator[tuple[int, Exception]]:
    """Indices, counted from ``first``, and exceptions of the matrices that raise on their own, found by bisection."""
    count = len(case.matrices)
    if count == 1:
        yield first, problem
        return
    for part in (slice(0, count // 2), slice(count // 2, count)):
        half = case._replace(matrices=case.matrices[part])
        try:
            list(operation.judge(half, operation.prepare(half.matrices), method))
        except Exception as error:
            yield from _culprits(operation, method, half, first + part.start, error)
