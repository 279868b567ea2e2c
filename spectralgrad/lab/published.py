"""The papers' tables that a comparison stands beside: TPAMI 2021, Tables 3 and 4, as printed.

W. Wang, Z. Dang, Y. Hu, P. Fua and M. Salzmann. Robust Differentiable SVD. TPAMI 2021. Table 4 repeats Table 2 of
Backpropagation-Friendly Eigendecomposition (NeurIPS 2019); the line of batch normalisation is that paper's Table 5.
Cells that cannot be right are kept as printed, with a note.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

TABLE3 = "TPAMI 2021, Table 3: CIFAR-100, ResNet-18, d = 64, 8 runs a setting"
TABLE4 = "TPAMI 2021, Table 4: CIFAR-10, ResNet-18, 350 epochs, 15 trials of SVD and PI"


@dataclass(frozen=True)
class Cell:
    """What a paper prints for one setting. Numbers are percentages; NaN where it prints none.

    Attributes:
        success: share of the runs that did not fail.
        mean: error of those that did not.
        sd: its standard deviation.
        least: the least error.
        note: what cannot be right about the cell.

    Example:
        >>> print(TAYLOR[16])
        4.52 ± 0.14 (4.33)
        >>> TABLE["svd"][4].note
        'the least error is above the mean'
    """

    success: float
    mean: float = math.nan
    sd: float = math.nan
    least: float = math.nan
    note: str = ""

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "–" if math.isnan(self.least) else f"({self.least:.2f})"
        return f"{self.mean:.2f} ± {self.sd:.2f} ({self.least:.2f})"


_FAILS = Cell(0.0)
_CLIP = "the deviation needs 30 runs or more for this least error; 0.06 may be meant"

TAYLOR: dict[int | None, Cell] = {
    4: Cell(100.0, 4.52, 0.09, 4.33),
    8: Cell(100.0, 4.55, 0.12, 4.34),
    16: Cell(100.0, 4.52, 0.14, 4.33),
    32: Cell(100.0, 4.57, 0.16, 4.40),
    64: Cell(100.0, 4.50, 0.08, 4.40),
}

# Method → group size → cell; None is a method without groups.
TABLE: dict[str, dict[int | None, Cell]] = {
    "svd": {
        4: Cell(46.7, 4.54, 0.08, 4.59, "the least error is above the mean"),
        8: _FAILS,
        16: _FAILS,
        32: _FAILS,
        64: _FAILS,
    },
    "pi": {
        4: Cell(100.0, 4.99, 0.51, 4.44),
        8: Cell(6.7, least=6.28),
        16: _FAILS,
        32: _FAILS,
        64: _FAILS,
    },
    "svd-clip": {
        4: Cell(100.0, 4.84, 0.23, 4.57),
        8: Cell(100.0, 4.77, 0.66, 4.66, _CLIP),
        16: Cell(100.0, 4.89, 0.16, 4.70),
        32: Cell(100.0, 4.87, 0.13, 4.76),
        64: Cell(100.0, 4.83, 0.15, 4.62),
    },
    "svd-pi": {
        4: Cell(100.0, 4.71, 0.11, 4.59),
        8: Cell(100.0, 4.62, 0.18, 4.43),
        16: Cell(100.0, 4.63, 0.14, 4.40),
        32: Cell(100.0, 4.64, 0.15, 4.46),
        64: Cell(100.0, 4.59, 0.09, 4.44),
    },
    "svd-taylor": TAYLOR,
    "batchnorm": {None: Cell(100.0, 4.81, 0.19, 4.66)},
}

# (ε, degree) of SVD-Taylor → cell.
SETTINGS: dict[tuple[float, int], Cell] = {
    (1e-4, 19): Cell(50.0, 21.31, 0.33, 21.04),
    (1e-2, 19): Cell(87.5, 21.45, 0.26, 21.12),
    (1e-2, 9): Cell(100.0, 21.14, 0.20, 20.91),
}


def published(method: str, group_size: int | None) -> Cell | None:
    """The paper's cell of Table 4 for a method and a group size; None where it has none.

    Example:
        >>> published("svd", 16).success
        0.0
        >>> published("exact", 16) is None
        True
    """
    cells = TABLE.get(method, {})
    return cells.get(None if None in cells else group_size)
