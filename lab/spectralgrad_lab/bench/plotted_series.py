"""What the pictures show: ratios by size, by batch, and on the grid of batches and sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from .goals import Row, grid_axes, grid_title
from .outcomes import Outcome

Points = list[tuple[float, float]]
_USUAL = ("wishart", "gaussian")
_LEAST = 3  # points of a line


def by_size(found: Sequence[Row]) -> dict[str, Points]:
    """Group of goals → (size, ratio), for groups with several sizes; a rectangular matrix has the size √(mn)."""
    lines: dict[str, Points] = {}
    for row in _plain(found):
        if row.goal.title != grid_title():
            lines.setdefault(_name(row), []).append((math.sqrt(math.prod(row.outcome.case.shape)), row.ratio or 0.0))
    return {name: sorted(points) for name, points in lines.items() if len(points) >= _LEAST}


def by_batch(outcomes: Sequence[Outcome]) -> dict[str, Points]:
    """Size of the grid → (batch, ratio)."""
    batches, sizes = grid_axes()
    ratios = grid(outcomes)
    lines = {f"d = {d}": [(float(b), ratios[b, d]) for b in batches if (b, d) in ratios] for d in sizes}
    return {name: points for name, points in lines.items() if len(points) >= _LEAST}


def grid(outcomes: Iterable[Outcome]) -> dict[tuple[int, int], float]:
    """(Batch, size) → ratio of eigh in float32 against torch, on the grid."""
    batches, sizes = grid_axes()
    ratios = {}
    for outcome in outcomes:
        case = outcome.case
        if (outcome.contest, case.precision, case.spectrum) != ("eigh", "float32", "wishart"):
            continue
        ratio = outcome.ratio("ours", "torch")
        if case.batch in batches and case.size in sizes and ratio is not None:
            ratios[case.batch, case.size] = ratio
    return ratios


def _plain(found: Sequence[Row]) -> list[Row]:
    """Rows with figures, of the usual spectra, against the first rival of their group."""
    rivals: dict[str, str] = {}
    for row in found:
        rivals.setdefault(row.goal.title, row.goal.rival)
    return [
        row
        for row in found
        if row.goal.floor is not None
        and row.ratio is not None
        and row.goal.rival == rivals[row.goal.title]
        and row.outcome.case.spectrum in _USUAL
    ]


def _name(row: Row) -> str:
    """The title of the group, with the type if that is not in it and not float32."""
    title, precision = row.goal.title, row.outcome.case.precision
    return title if precision == "float32" or precision in title or "complex" in title else f"{title}, {precision}"


def short(ratio: float) -> str:
    """A ratio in the few characters of a heat map.

    Example:
        >>> [short(ratio) for ratio in (0.0042, 0.218, 1.6, 21.4)]
        ['0.004', '0.22', '1.6', '21']
    """
    return f"{ratio:.1g}" if ratio < 0.1 else f"{ratio:.2g}"
