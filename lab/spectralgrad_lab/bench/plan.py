"""Which cells a run of the benchmark measures."""

from __future__ import annotations

from dataclasses import replace

from . import goals
from .cases import DTYPES, GAUSSIAN, Case
from .comparisons import CONTESTS

_QUICK = 2**25  # work of a cell
_USUAL = ("wishart", GAUSSIAN)
_REAL = ("covariance", "procrustes", "rmsd", "cca", "whitening", "frechet")  # measured in the type of their goals only

Cell = tuple[str, Case]


def plan(
    only: tuple[str, ...] | None = None,
    dtypes: tuple[str, ...] | None = None,
    spectra: tuple[str, ...] | None = None,
    quick: bool = False,
) -> list[Cell]:
    """The contests and cases of a run; without arguments, of the project's table of goals.

    Args:
        only: names of contests.
        dtypes: types in place of the table's. With these or ``spectra``, a contest has the sizes of its first
            group of goals.
        spectra: spectra of symmetric matrices in place of the table's.
        quick: leave out large matrices and unusual spectra.

    Example:
        >>> [case.label for name, case in plan(only=("eigvalsh",))]
        ['d=8 (2048)', 'd=32 (512)', 'd=64 (1)']
        >>> len(plan(only=("eigh",), dtypes=("float64",), spectra=("graded", "clustered")))
        16
    """
    names = only or tuple(CONTESTS)
    cells = [cell for cell in goals.cells() if cell[0] in names]
    if dtypes or spectra:
        cells = [variant for cell in _first_groups(names) for variant in _variants(cell, dtypes, spectra)]
    if quick:
        cells = [cell for cell in cells if cell[1].work <= _QUICK and (spectra or cell[1].spectrum in _USUAL)]
    return list(dict.fromkeys(cells))


def _first_groups(names: tuple[str, ...]) -> list[Cell]:
    titles: dict[str, str] = {}
    for goal in goals.table():
        titles.setdefault(goal.contest, goal.title)
    return [goal.cell for goal in goals.table() if goal.contest in names and goal.title == titles[goal.contest]]


def _variants(cell: Cell, dtypes: tuple[str, ...] | None, spectra: tuple[str, ...] | None) -> list[Cell]:
    name, case = cell
    kinds = [case.dtype] if name in _REAL or not dtypes else [DTYPES[dtype] for dtype in dtypes]
    shapes = [case.spectrum] if case.columns or not spectra else list(spectra)
    return [(name, replace(case, dtype=kind, spectrum=spectrum)) for spectrum in shapes for kind in kinds]
