"""Minimum and target speed ratios of the project, for two AVX-512 cores, and which cells reach them."""

from __future__ import annotations

from collections.abc import Iterable

from spectralgrad.diagnostics.table import number, render

from . import Outcome
from .cases import SIZES

# Contest, dtype, ours, rival → (floor, goal) for each size of SIZES; where no goal is set it equals the floor.
SQUARE: dict[tuple[str, str, str, str], list[tuple[float, float]]] = {
    ("eigh", "float32", "ours", "torch"): [
        (20, 30), (20, 32), (18, 28), (12, 20), (10, 16), (5, 9), (2.5, 4), (1.4, 1.9),
    ],
    ("eigh", "float64", "ours", "torch"): [
        (15, 24), (14, 22), (11, 17), (8, 13), (5, 9), (3.5, 6), (1.6, 2.5), (1.4, 1.9),
    ],
    ("inv_sqrt", "float32", "exact", "autograd"): [
        (7, 14), (7, 14), (7, 14), (6, 11), (4, 9), (2.5, 5), (1.5, 2.5), (1, 1.7),
    ],
    ("inv_sqrt", "float32", "exact", "ns5"): [
        (10, 10), (10, 10), (8, 8), (6, 6), (4, 4), (3, 3), (2.5, 2.5), (2.5, 2.5),
    ],
}  # fmt: skip
COVARIANCE = {49: 20.0, 169: 4.0, 196: 3.0}
POLAR = 4.0
SHARE = {"wishart": 1.0, "graded": 0.5, "gaussian": 1.0}  # of the figures above that a spectrum has to reach


def targets(outcome: Outcome) -> list[tuple[str, str, float, float]]:
    """Ours, rival, floor and goal of every entry of the table for this outcome."""
    case, share = outcome.case, SHARE.get(outcome.case.spectrum)
    if share is None:
        return []
    if outcome.contest == "covariance" and case.columns in COVARIANCE:
        return [("exact", "ns5", COVARIANCE[case.columns], COVARIANCE[case.columns])]
    if outcome.contest == "polar":
        return [("ours", "svd", POLAR, POLAR)]
    if SIZES.get(case.size) != case.batch:
        return []
    place = list(SIZES).index(case.size)
    return [
        (ours, rival, share * figures[place][0], share * figures[place][1])
        for (contest, dtype, ours, rival), figures in SQUARE.items()
        if (contest, dtype) == (outcome.contest, case.precision)
    ]


def as_table(outcomes: Iterable[Outcome]) -> str:
    """One row per entry of the table: the measured ratio, floor and goal, and which of them is reached."""
    rows = []
    for outcome in outcomes:
        for ours, rival, floor, goal in targets(outcome):
            ratio = outcome.ratio(ours, rival)
            case = outcome.case
            name = f"{outcome.contest} {case.precision} {case.spectrum} {case.label} {ours}:{rival}"
            measured = "not timed" if ratio is None else number(ratio)
            rows.append([name, measured, number(floor), number(goal), _grade(ratio, floor, goal)])
    return render(["", "measured", "floor", "goal", ""], rows)


def _grade(ratio: float | None, floor: float, goal: float) -> str:
    if ratio is None or ratio < floor:
        return "below"
    return "goal" if ratio >= goal else "floor"
