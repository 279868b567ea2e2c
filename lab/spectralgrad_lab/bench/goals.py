"""The cells of the benchmark with their floors and goals, read from goals.toml, and which of them are reached."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

from .cases import DTYPES, GAUSSIAN, Case
from .outcomes import Outcome

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BELOW, FLOOR, GOAL = "below", "floor", "goal"
_USUAL = ("ours", "exact")  # names of our contestants that need no mention


@dataclass(frozen=True)
class Goal:
    """What one cell has to reach against one rival.

    Args:
        title: of the group of cells.
        contest: a key of ``CONTESTS``.
        case: the matrices.
        ours: our contestant.
        rival: the contestant it is compared with.
        floor: the least ratio of times, or None if the cell is measured without one.
        goal: the ratio to aim at.
    """

    title: str
    contest: str
    case: Case
    ours: str
    rival: str
    floor: float | None
    goal: float | None

    @property
    def cell(self) -> tuple[str, Case]:
        """The contest and the case."""
        return self.contest, self.case


@dataclass(frozen=True)
class Row:
    """A goal and the outcome of its cell.

    Example:
        >>> from spectralgrad_lab.bench import run
        >>> (row,) = rows(run([("covariance", Case(32, 256, DTYPES["float32"], "gaussian", 49))], seconds=0.01))
        >>> row.name, row.goal.floor
        ('covariance float32 256×49 (32)', 20.0)
    """

    goal: Goal
    outcome: Outcome

    @property
    def name(self) -> str:
        """Contest, our contestant and spectrum unless they are the usual ones, type, size and batch."""
        case, ours = self.outcome.case, self.goal.ours
        contest = self.outcome.contest if ours in _USUAL else f"{self.outcome.contest} by {ours}"
        spectrum = () if case.spectrum in (GAUSSIAN, "wishart") else (case.spectrum,)
        return " ".join((contest, case.precision, *spectrum, case.label))

    @property
    def ratio(self) -> float | None:
        """The rival's time divided by ours; None if one of them was not timed."""
        return self.outcome.ratio(self.goal.ours, self.goal.rival)

    @property
    def grade(self) -> str:
        """``below``, ``floor`` or ``goal``, whichever is reached; empty for a cell without figures.

        A cell in which we are wrong or fail is below. If the rival is, there is nothing to compare with.
        """
        floor, goal, ratio = self.goal.floor, self.goal.goal, self.ratio
        if floor is None or goal is None:
            return ""
        if ratio is None:
            return BELOW if self.outcome[self.goal.ours].timing is None else ""
        return GOAL if ratio >= goal else FLOOR if ratio >= floor else BELOW


def rows(outcomes: Iterable[Outcome]) -> list[Row]:
    """Each outcome with each of its goals; outcomes without any are compared with the first rival, without figures."""
    known: dict[tuple[str, Case], list[Goal]] = {}
    for goal in table():
        known.setdefault(goal.cell, []).append(goal)
    return [
        Row(goal, outcome)
        for outcome in outcomes
        for goal in known.get((outcome.contest, outcome.case)) or [_without_figures(outcome)]
        if goal.ours in outcome and goal.rival in outcome  # JAX, for example, may not be installed
    ]


def cells() -> list[tuple[str, Case]]:
    """The contests and cases of the table, each once.

    Example:
        >>> ("svd", Case(4096, 3, DTYPES["float64"], "gaussian", 3)) in cells()
        True
    """
    return list(dict.fromkeys(goal.cell for goal in table()))


def grid_axes() -> tuple[list[int], list[int]]:
    """Batches and sizes of the grid that has one floor for all its cells."""
    grid = _grid_group()["grid"]
    return grid["batches"], grid["sizes"]


def grid_title() -> str:
    """The title of that grid."""
    return str(_grid_group()["title"])


@cache
def table() -> tuple[Goal, ...]:
    """All goals, in the order of the file."""
    found: dict[tuple[str, Case, str, str], Goal] = {}
    for group in _groups():
        for goal in _goals(group):
            found.setdefault((goal.contest, goal.case, goal.ours, goal.rival), goal)
    return tuple(found.values())


def _grid_group() -> dict[str, Any]:
    return next(group for group in _groups() if "grid" in group)


@cache
def _groups() -> list[dict[str, Any]]:
    return list(tomllib.loads((files(__package__) / "goals.toml").read_text("utf-8"))["goals"])


def _goals(group: dict[str, Any]) -> Iterator[Goal]:
    spectra = group.get("spectra", {"wishart": 1})
    variants = list(product(spectra.items(), group.get("dtypes", {"float32": 1}).items()))
    head = group["title"], group["contest"]
    ours = group.get("ours", "ours")
    for (spectrum, share), (dtype, part) in variants:
        for cell, figures in _cells(group).items():
            case = _case(cell, dtype, spectrum)
            scaled = [float(share * part * figure) for figure in figures]
            floor, goal = (scaled[0], scaled[-1]) if scaled else (None, None)
            yield Goal(*head, case, ours, group["against"], floor, goal)
            for rival in group.get("above", ()):
                yield Goal(*head, case, ours, rival, 1.0, 1.0)


def _cells(group: dict[str, Any]) -> dict[str, list[float]]:
    if "grid" not in group:
        return dict(group["cells"])
    grid = group["grid"]
    return {f"{batch}x{size}": grid["figures"] for batch, size in product(grid["batches"], grid["sizes"])}


def _case(cell: str, dtype: str, spectrum: str) -> Case:
    """The case that ``4096x3`` (symmetric) or ``128x64x32`` stands for."""
    batch, size, *columns = map(int, cell.split("x"))
    return Case(batch, size, DTYPES[dtype], GAUSSIAN if columns else spectrum, *columns)


def _without_figures(outcome: Outcome) -> Goal:
    ours, rival = (next(e.name for e in outcome.entries if e.ours is mine) for mine in (True, False))
    return Goal("", outcome.contest, outcome.case, ours, rival, None, None)
