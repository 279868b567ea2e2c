"""The report of a run: a page and a JSON file with the same content, without anything that identifies the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from spectralgrad.diagnostics.table import render
from spectralgrad.io.files import write_json, write_text

from ..machine import machine
from ..report import template
from .anonymous import anonymous
from .checks import FAILED, PASSED, SKIPPED, Outcome, counts
from .speed import Time
from .target import Target

PAGE, DATA = "verify.html", "verify.json"
_TEMPLATE = "verify/verify.html.j2"
_HEADER = ("checks", PASSED, FAILED, SKIPPED, "seconds")


@dataclass(frozen=True)
class Run:
    """All outcomes and times on a device, and what describes it."""

    device: dict[str, str]
    machine: dict[str, Any]
    quick: bool
    outcomes: tuple[Outcome, ...]
    times: tuple[Time, ...]
    triton: str

    @property
    def seconds(self) -> float:
        return round(sum(outcome.seconds for outcome in self.outcomes), 1)

    @property
    def headline(self) -> str:
        found = counts(self.outcomes)
        return (
            f"{self.device['device']}: {found[PASSED]} checks passed, {found[FAILED]} failed, {found[SKIPPED]} skipped,"
            f" in {self.seconds:.0f} s"
        )

    def with_status(self, status: str) -> list[Outcome]:
        """The outcomes of this status."""
        return [outcome for outcome in self.outcomes if outcome.status == status]


def here(target: Target, quick: bool, outcomes: Sequence[Outcome], times: Sequence[Time], triton: str) -> Run:
    """A run on this machine."""
    software = {name: _version(name) for name in ("numpy", "triton")}
    told = {name: anonymous(text) for name, text in target.description.items()}
    return Run(told, machine() | software, quick, tuple(outcomes), tuple(times), anonymous(triton))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def groups(run: Run) -> list[list[str]]:
    """A row for each group of checks: its name, the counts and the seconds."""
    rows = []
    for group in dict.fromkeys(outcome.group for outcome in run.outcomes):
        members = [outcome for outcome in run.outcomes if outcome.group == group]
        numbers = counts(members).values()
        rows.append([group, *map(str, numbers), f"{sum(outcome.seconds for outcome in members):.1f}"])
    return rows


def reasons(run: Run) -> dict[str, list[str]]:
    """Why checks were skipped, and the groups that have such checks with their number."""
    found: dict[str, dict[str, int]] = {}
    for outcome in run.with_status(SKIPPED):
        members = found.setdefault(outcome.message, {})
        members[outcome.group] = members.get(outcome.group, 0) + 1
    return {reason: [f"{group} ({count})" for group, count in members.items()] for reason, members in found.items()}


def speed_rows(run: Run) -> list[list[str]]:
    """Rows of the table of times: microseconds and ratios, forward and with the backward pass."""
    rows = []
    for time in run.times:
        cells = [x for ours, ratio in zip(time.ours, time.ratios, strict=True) for x in (f"{ours:.1f}", ratio)]
        rows.append([time.name, time.shape, *cells])
    return rows


SPEED_HEADER = ("call", "shape", "µs", "torch / ours", "µs with backward", "torch / ours")


def text(run: Run) -> str:
    """The report for a terminal."""
    parts = [render(_HEADER, groups(run))]
    if run.times:
        parts.append(render(SPEED_HEADER, speed_rows(run)))
    if run.with_status(SKIPPED):
        parts.append("\n".join(["skipped", *(f"  {', '.join(of)}: {why}" for why, of in reasons(run).items())]))
    if run.with_status(FAILED):
        parts.append("\n".join(["failed", *map(_line, run.with_status(FAILED))]))
    return "\n\n".join([*parts, run.headline])


def _line(outcome: Outcome) -> str:
    first, *more = outcome.message.splitlines() or [""]
    return f"  {outcome.group}, {outcome.name}: {first}{' …' if more else ''}"


def write(folder: Path, run: Run) -> None:
    """Create a folder with the page and the data."""
    folder.mkdir(exist_ok=True)
    content = {"format": 1, "headline": run.headline, **asdict(run)}
    write_json(folder / DATA, content)
    write_text(folder / PAGE, page(run))


def page(run: Run) -> str:
    """The page as HTML, self-contained."""
    return template.fill(
        _TEMPLATE,
        run=run,
        header=_HEADER,
        groups=groups(run),
        reasons=reasons(run),
        failed=run.with_status(FAILED),
        speed_header=SPEED_HEADER,
        speed=speed_rows(run),
    )
