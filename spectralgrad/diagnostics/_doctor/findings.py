"""What the doctor knows about one line of source, over all the calls that it made."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ...autograd.existence import KINDS, Flaw
from ..table import number
from .advice import advice
from .composed import Composed
from .measures import Backward, Forward
from .operations import Operation
from .places import Place

# From the worst to the harmless, with what it means for the gradient.
VERDICTS = {
    "error": "the call failed",
    "non-finite": "the incoming gradient was finite, the outgoing one was not",
    "arrived non-finite": "the gradient already had NaN or Inf when it reached this call",
    **KINDS,
    "noisy": "rounding errors, amplified by small gaps, reach the gradient",
    "fine": "nothing found",
}
_NOISY = 1e-2  # estimated relative error above which a gradient is reported
_COMPOSED = 8  # different functions kept for one line


@dataclass
class Finding:
    """One operation at one line of source. Numbers are the worst over its calls.

    Attributes:
        place: file, line, function and the caller outside installed packages.
        operation: the function that was called.
        shape: shape of the matrices in the last call.
        dtype: their dtype.
        calls: number of calls.
        gradients: number of backward passes that reached it.
        ties: largest number of pairs of values closer than 64 ε ‖A‖ in one matrix.
        relative_gap: smallest |λi − λj|/‖A‖; infinite for a single value.
        rank: smallest numerical rank; -1 if the spectrum is unknown.
        condition: largest condition number.
        gauge: largest share of the cotangent in which no derivative exists, 0 to 1.
        between_ties: largest entry of the cotangent between tied vectors, relative to the cotangent.
        error: largest estimated relative error of the gradient, from rounding or from what a composed function loses.
        failure: message of the first exception.
        verdicts: how often each of :data:`VERDICTS` was given.
        composed: the functions that were composed by hand from the factors.
        bad_input: a call failed whose matrix had NaN or Inf.
        cause: the place whose gradient is probably the origin of NaN or Inf here; empty if it is not known.
    """

    place: Place
    operation: Operation
    shape: tuple[int, ...] = ()
    dtype: str = ""
    calls: int = 0
    gradients: int = 0
    ties: int = 0
    relative_gap: float = math.inf
    rank: int = -1
    condition: float = 1.0
    gauge: float = 0.0
    between_ties: float = 0.0
    error: float = 0.0
    failure: str = ""
    verdicts: Counter[str] = field(default_factory=Counter)
    composed: list[Composed] = field(default_factory=list)
    bad_input: bool = False
    cause: str = ""
    positive: bool = False  # an SVD of Hermitian positive semi-definite matrices only
    flaw: str = ""  # the worst kind that the backward pass under way has found

    def note_forward(self, found: Forward | None) -> None:
        """Add the spectrum of a call."""
        if found is not None:
            self.ties = max(self.ties, found.ties)
            self.relative_gap = min(self.relative_gap, found.relative_gap)
            self.rank = found.rank if self.rank < 0 else min(self.rank, found.rank)
            self.condition = max(self.condition, found.condition)

    def note_symmetry(self, positive: bool) -> None:
        """Add whether the matrices of an SVD were Hermitian and positive semi-definite."""
        self.positive = positive and (self.positive or self.calls == 1)

    def note_backward(self, measure: Callable[[], Backward]) -> None:
        """Add what a backward pass delivered, unless it cannot be measured, as for batched gradients (vmap)."""
        self.gradients += 1
        flawed, self.flaw = self.flaw, ""
        try:
            found = measure()
        except RuntimeError:
            return
        self.between_ties, self.error = max(self.between_ties, found.between_ties), max(self.error, found.error)
        verdict = _verdict(found)
        if verdict not in ("noisy", "fine"):
            self.verdicts[verdict] += 1
        elif found.flaws:
            self._note_worst(found.flaws)
        elif not flawed:
            self._count(verdict)

    def note_flaws(self, flaws: list[Flaw]) -> None:
        """Add what a backward pass of this library found while it ran; it may fail before :meth:`note_backward`."""
        self.flaw = self._note_worst(flaws)

    @property
    def loses(self) -> bool:
        """True if a function of the matrix was composed here, or the backward pass under way looks like it."""
        return self.flaw == "lost" or any(function.scaled for function in self.composed)

    def _note_worst(self, flaws: Iterable[Flaw]) -> str:
        worst = min(flaws, key=lambda flaw: list(KINDS).index(flaw.kind))
        self.gauge = max(self.gauge, 0.0 if worst.kind == "lost" else worst.share)
        self._count(worst.kind)
        return worst.kind

    def _count(self, verdict: str) -> None:
        if self.ties and any(function.scaled for function in self.composed):
            # Even where the cotangent of the vectors does not show it: it vanishes where f does, as log λ at 1. And f
            # may differ between values that are tied up to rounding, as √λ does at 0, which looks like the gauge.
            verdict = "lost"
        self.verdicts[verdict] += 1

    def note_failure(self, error: BaseException, bad_input: bool) -> None:
        """Add an exception that the call raised."""
        self.bad_input |= bad_input
        self.failure = self.failure or f"{type(error).__name__}: {error}"
        self.verdicts["error"] += 1

    def note_composed(self, function: Composed) -> None:
        """Add a function that was composed from the factors."""
        function = replace(function, source=None)
        if function.signed:  # the determinant of U Vᴴ decides its sign
            self.composed = [x for x in self.composed if x != replace(function, signed=False)]
        if not function.harmless and function not in self.composed and len(self.composed) < _COMPOSED:
            self.composed.append(function)

    def instead(self, function: Composed) -> str:
        """What to write instead of a function composed here; the SVD of a positive matrix is its eigendecomposition."""
        text = function.instead(self._of_singular_values(function))
        assumed = self.operation.is_svd and not self._of_singular_values(function)
        return f"{text} (if A is always symmetric and positive semi-definite, as here)" if assumed else text

    def caution(self, function: Composed) -> str:
        """What to know about a bound in a function composed here; empty if there is nothing."""
        return function.caution(self._of_singular_values(function))

    def _of_singular_values(self, function: Composed) -> bool:
        return self.operation.is_svd and not (self.positive and function.is_function_of_positive)

    @property
    def verdict(self) -> str:
        """The worst verdict, one of :data:`VERDICTS`; not a failure that a gradient of this line has caused."""
        given = [name for name in VERDICTS if self.verdicts[name]]
        if self.bad_input and given[1:2] in (["non-finite"], ["arrived non-finite"]):
            return given[1]
        return given[0] if given else "fine"

    @property
    def advice(self) -> list[str]:
        """What to do, the best advice first; empty if nothing is to be done."""
        return advice(self)

    @property
    def size(self) -> int:
        """The number of eigenvalues or singular values of a matrix."""
        return min(self.shape[-2:], default=0)

    def row(self) -> dict[str, Any]:
        """The values for JSON, without NaN and infinity, which JSON does not have: they become null."""
        return {
            "file": self.place.file,
            "line": self.place.line,
            "function": self.place.function,
            "code": self.place.code,
            "called_from": self.place.called_from or None,
            "operation": self.operation.name,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "calls": self.calls,
            "gradients": self.gradients,
            "ties": self.ties,
            "relative_gap": _finite(self.relative_gap),
            "rank": self.rank if self.rank >= 0 else None,
            "condition": _finite(self.condition),
            "gauge": _finite(self.gauge),
            "between_ties": _finite(self.between_ties),
            "error": _finite(self.error),
            "failure": self.failure or None,
            "verdict": self.verdict,
            "verdicts": dict(self.verdicts),
            "composed": [x.text for x in self.composed],
            "instead": [self.instead(x) for x in self.composed],
            "advice": self.advice,
        }

    def spectrum(self) -> str:
        """The spectrum in one line."""
        if self.rank < 0:
            return ""
        gap = "" if math.isinf(self.relative_gap) else f", smallest relative gap {number(self.relative_gap)}"
        pairs = "1 tied pair" if self.ties == 1 else f"{self.ties} tied pairs"
        return f"{pairs}{gap}, rank {self.rank} of {self.size}, condition {number(self.condition)}"


def _verdict(found: Backward) -> str:
    if not found.finite_before:
        return "arrived non-finite"
    if not found.finite_after:
        return "non-finite"
    return "noisy" if found.error > _NOISY else "fine"


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None
