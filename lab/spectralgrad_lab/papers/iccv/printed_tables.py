"""Statements of the text about the printed results, checked against the tables (Tables 2–5 and 11, poster)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from ...published.printed import printed
from ..registry import computes
from ..value_conditions import Value

NS, PADE, BASE = "iSQRT-COV", "SVD-Padé", "MPN-COV"
REMEDIES = ("SVD-Padé", "SVD-Taylor", "SVD-Newton", "SVD-Trunc", "SVD-TopN")

Rows = Mapping[str, Sequence[float]]


def rows(table: str, part: str = "rows") -> Rows:
    """The cells of a printed table by method."""
    found: Rows = printed("iccv")[table][part]
    return found


def minus(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Differences of printed numbers, free of binary rounding."""
    return [round(a - b, 2) for a, b in zip(one, other, strict=True)]


def margins(table: Rows, method: str, columns: slice) -> list[float]:
    """Error of the best other remedy minus a method's error, by column."""
    others = [name for name in REMEDIES if name != method and name in table]
    best = [min(column) for column in zip(*(table[name][columns] for name in others), strict=True)]
    return minus(best, table[method][columns])


@computes("iccv/P32", "iccv/S1")
def alexnet() -> Mapping[str, Value]:
    """Table 2: in which hybrid columns SVD-Padé is best, its margins alone, and who improves on MPN-COV alone."""
    table = rows("table-2")
    hybrid = [min(column) for column in zip(*(cells[2:] for cells in table.values()), strict=True)]
    gains = {name: minus(table[BASE][:2], table[name][:2]) for name in REMEDIES}
    return {
        "hybrid_best": sum(cell == best for cell, best in zip(table[PADE][2:], hybrid, strict=True)),
        "margins": margins(table, PADE, slice(0, 2)),
        "gains_top1": [gains[name][0] for name in REMEDIES],
        "gains_top5": [gains[name][1] for name in REMEDIES],
        "all_improve": all(gain > 0 for pair in gains.values() for gain in pair),
        "best_above_final": ", ".join(name for name, c in table.items() if c[4] > c[2] or c[5] > c[3]),
        "beats_isqrt": sum(gain > 0 for gain in minus(table[NS][2:], table[PADE][2:])),
    }


@computes("iccv/P33")
def gains() -> Mapping[str, Value]:
    """SVD-Padé trained alone: gain over MPN-COV in Table 2 and over Newton–Schulz in Table 3."""
    table, resnet50, resnet101 = rows("table-2"), rows("table-3", "resnet-50"), rows("table-3", "resnet-101")
    return {
        "over_svd": minus(table[BASE][:2], table[PADE][:2]),
        "over_newton_schulz": [
            *minus(resnet50[NS][:2], resnet50[PADE][:2]),
            *minus(resnet101[NS][:2], resnet101[PADE][:2]),
        ],
    }


@computes("iccv/P34")
def fine_grained() -> Mapping[str, Value]:
    """Table 4: how far the SVD variants are above Newton–Schulz, final and best, and where SVD-Padé is the best."""
    table = rows("table-4")
    above = {name: minus(cells, table[NS]) for name, cells in table.items() if name != NS}
    best = [max(column) for column in zip(*table.values(), strict=True)]
    return {
        "smallest_final": min(gain for cells in above.values() for gain in cells[0::2]),
        "smallest_best": min(gain for cells in above.values() for gain in cells[1::2]),
        "pade_final": min(above[PADE][0::2]),
        "pade_best": min(above[PADE][1::2]),
        "below_one": [sum(cell < 1 for cell in cells) for cells in zip(*above.values(), strict=True)],
        "pade_first": sum(cell == top for cell, top in zip(table[PADE], best, strict=True)),
    }


@computes("iccv/P36")
def warm_up() -> Mapping[str, Value]:
    """Table 11: where two epochs of warm-up are best, and how the best error changes with each more."""
    table = [cells for name, cells in rows("table-11").items() if name != NS]
    columns = list(zip(*table, strict=True))
    final = [column.index(min(column)) for column in columns[:2]]
    steps = [minus(after[2:], before[2:]) for before, after in pairwise(table)]
    return {
        "epochs_of_best_final": final,
        "two_to_three": steps[-1],
        "top1_steps": [step[0] for step in steps],
        "top5_steps": [step[1] for step in steps],
        "without_warm_up": minus(rows("table-11")[NS], table[0])[0],
    }


@computes("iccv/S2")
def poster() -> Mapping[str, Value]:
    """The poster's first table against the rows of the same methods in its table of results (Table 3)."""
    first, main = rows("poster-table-1"), rows("table-3", "resnet-50")
    return {
        "differences": [d for name in (BASE, NS) for d in minus(main[name][:2], first[name])],
        "gap_first": minus(first[BASE], first[NS])[0],
        "gap_main": minus(main[BASE][:2], main[NS][:2])[0],
    }
