"""The report of the doctor: one entry per line of source, the worst first."""

from __future__ import annotations

import json
import math
from pathlib import Path

from ...io.files import write_text
from ..table import number
from .findings import VERDICTS, Finding
from .operations import Operation
from .places import Place

_ORDER = list(VERDICTS)


class Report:
    """What :func:`doctor` found. It prints as text; ``findings`` has the numbers.

    Attributes:
        findings: list of :class:`Finding`, in the order of their first call.
        omitted: number of calls at further places, beyond the limit.
        unseen: number of calls inside transforms of torch.func, whose gradients cannot be observed.
    """

    omitted: int

    def __init__(self, limit: int) -> None:
        self.omitted = 0
        self.unseen = 0
        self._limit = limit
        self._places: dict[tuple[Place, str], Finding] = {}

    @property
    def findings(self) -> list[Finding]:
        found = list(self._places.values())
        for finding in found:
            finding.cause = _cause(finding, found)
        return found

    @property
    def healthy(self) -> bool:
        """True if nothing was found."""
        return all(finding.verdict == "fine" for finding in self.findings)

    def at(self, place: Place, operation: Operation) -> Finding | None:
        """Return the entry of a place, or None beyond the limit."""
        key = (place, operation.name)
        if key not in self._places and len(self._places) >= self._limit:
            self.omitted += 1
            return None
        return self._places.setdefault(key, Finding(place, operation))

    def __str__(self) -> str:
        ranked = sorted(self.findings, key=_rank)
        return "\n\n".join([self._summary(), *map(_entry, ranked)])

    __repr__ = __str__

    def _summary(self) -> str:
        calls, gradients = (sum(getattr(x, name) for x in self.findings) for name in ("calls", "gradients"))
        places = len(self.findings)
        bad = sum(finding.verdict != "fine" for finding in self.findings)
        if not places:
            text = "No spectral operation was called in this thread."
        else:
            state = "nothing found" if not bad else f"{_count(bad, 'place')} with a problem"
            counts = (_count(calls, "spectral call"), _count(places, "place"), _count(gradients, "gradient"))
            text = "{} at {}, {}: {}.".format(*counts, state)
        if self.unseen:
            text += f" {_count(self.unseen, 'call')} inside torch.func transforms without a view of the gradient."
        if self.omitted:
            text += f" {_count(self.omitted, 'call')} at further places not recorded."
        return text

    def as_json(self) -> str:
        """Return the report as strict JSON; numbers that are infinite or unknown are null."""
        content = {
            "healthy": self.healthy,
            "omitted": self.omitted,
            "unseen": self.unseen,
            "findings": [finding.row() for finding in self.findings],
        }
        return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)

    def save(self, path: str | Path) -> None:
        """Write :meth:`as_json` to a file."""
        write_text(Path(path), self.as_json())


def _entry(finding: Finding) -> str:
    """The text of one place."""
    place, shape = finding.place, "×".join(map(str, finding.shape))
    mark = "✓" if finding.verdict == "fine" else "✗"
    where = f"{place} in {place.function}: {place.code}" if place.line else place.file
    lines = [f"{mark} {where}"]
    if place.called_from:
        lines.append(f"called from {place.called_from}")
    what = f" of {shape} {finding.dtype}" if finding.shape else ""
    lines.append(f"{finding.operation.name}{what}, {_count(finding.calls, 'call')}")
    lines += [finding.spectrum()] if finding.spectrum() else []
    if finding.verdict != "fine":
        lines.append(f"{finding.verdict}: {VERDICTS[finding.verdict]}{_times(finding)}")
    lines += [x for x in (finding.failure, *_numbers(finding)) if x]
    lines += [f"→ {line}" for line in finding.advice]
    return "\n  ".join(lines)


def _cause(finding: Finding, found: list[Finding]) -> str:
    """The place whose gradient is probably the origin of NaN or Inf in ``finding``; empty if there is none."""
    suspects = ["non-finite"] if finding.verdict != "error" else ["non-finite", "arrived non-finite"]
    return next((str(x.place) for verdict in suspects for x in found if x is not finding and x.verdict == verdict), "")


def _rank(finding: Finding) -> float:
    """The worst first, but a failure after its cause."""
    caused = finding.verdict == "error" and finding.bad_input and finding.cause
    return _ORDER.index("arrived non-finite") + 0.5 if caused else _ORDER.index(finding.verdict)


def _times(finding: Finding) -> str:
    times, total = finding.verdicts[finding.verdict], max(finding.gradients, finding.calls)
    return "" if total == 1 else f" ({times} of {total} times)"


def _numbers(finding: Finding) -> list[str]:
    lines = []
    if finding.gauge > 0:
        lines.append(f"share of the cotangent without a derivative {number(finding.gauge)}")
    if finding.verdict in ("lost", "noisy") and finding.error > 0 and math.isfinite(finding.error):
        lines.append(f"estimated relative error of the gradient {number(finding.error)}")
    return lines


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
