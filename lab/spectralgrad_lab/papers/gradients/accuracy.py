"""How accurate each gradient is: the accuracy table and the statements drawn from it (G5–G8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import paired_matrix

from ..inputs import EPS, gaussian, paired, sym
from ..registry import computes
from ..value_conditions import Value
from .compared import ROOTS, TABLE, composed, error, plain_eigh, plain_svd, root_by, torch_eigh, torch_svd
from .refined import true_gradient

F32, F64 = torch.float32, torch.float64
PLAIN = {
    "torch.linalg.eigh": composed(torch_eigh),
    "torch.linalg.svd": composed(torch_svd),
    "sg.eigh": composed(plain_eigh),
    "sg.svd": composed(plain_svd),
    "sg.matrix_inv_sqrt": root_by(sg.Analytic()),
}


@dataclass(frozen=True)
class Case:
    """A row of the table: eigenvalues in pairs at a relative gap.

    Attributes:
        dtype: of the matrix and the arithmetic.
        size: of the matrix.
        condition: ratio of the largest eigenvalue to the eigenvalue of the last pair.
        gap: relative distance within a pair; 0 is an exact tie, in a diagonal matrix.
    """

    dtype: torch.dtype
    size: int
    condition: float
    gap: float

    def draw(self, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """A matrix, a cotangent, and the true gradient of A^(-1/2) for the matrix as stored."""
        A = paired_matrix(self.size, self.condition, self.gap, dtype=self.dtype, seed=seed)
        G = sym(gaussian(self.size, self.size, seed=seed + 100, dtype=self.dtype))
        return A, G, true_gradient(A, "inv_sqrt", G)

    def errors(self) -> dict[str, float]:
        """The median error of each column over nine draws, or three of the larger size.

        Where the gap is below rounding error, single draws differ by a factor of thousands between processors.
        """
        draws = [self.draw(seed) for seed in range(9 if self.size == 8 else 3)]
        return {name: float(np.median([error(root, *draw) for draw in draws])) for name, root in TABLE.items()}


CASES = (
    Case(F64, 8, 1e2, 1e-2),
    Case(F64, 8, 1e2, 1e-6),
    Case(F64, 8, 1e2, 1e-10),
    Case(F64, 8, 1e2, 1e-14),
    Case(F64, 8, 1e6, 1e-8),
    Case(F64, 8, 1e10, 0.0),
    Case(F64, 8, 1e12, 1e-2),
    Case(F64, 64, 1e2, 1e-2),
    Case(F64, 64, 1e2, 1e-8),
    Case(F64, 64, 1e2, 0.0),
    Case(F64, 64, 1e6, 1e-12),
    Case(F64, 64, 1e12, 1e-8),
    Case(F32, 8, 1e2, 1e-2),
    Case(F32, 8, 1e2, 1e-5),
    Case(F32, 64, 1e2, 1e-4),
    Case(F32, 64, 1e2, 0.0),
    Case(F32, 64, 1e4, 1e-2),
    Case(F32, 64, 1e6, 1e-2),
)


@computes("gradients/accuracy-table")
def table() -> Mapping[str, Value]:
    """The errors of A^(-1/2) in every case and column; in each column one value per case."""
    rows = [case.errors() for case in CASES]
    return {name: [row[name] for row in rows] for name in TABLE}


@lru_cache(maxsize=1)
def plain_errors() -> Mapping[str, list[float]]:
    """The error of the plain gradient of A^(-1/2) through five decompositions, at the gaps 1e-4 … 1e-10."""
    found: dict[str, list[float]] = {name: [] for name in PLAIN}
    for gap in (1e-4, 1e-6, 1e-8, 1e-10):
        A, reference, G = paired(1e2, gap)
        truth = reference.gradient("inv_sqrt", G)
        for name, root in PLAIN.items():
            found[name].append(error(root, A, G, truth))
    return found


@computes("gradients/G5")
def svd_like_eigh() -> Mapping[str, Value]:
    """The plain error through torch's and our svd, over u/gap, at the gaps 1e-4, 1e-6, 1e-8, 1e-10."""
    found = plain_errors()
    over = {name: _over_rounding(found[name]) for name in ("torch.linalg.svd", "sg.svd")}
    ratio = [a / b for a, b in zip(found["torch.linalg.svd"], found["torch.linalg.eigh"], strict=True)]
    return {"torch": over["torch.linalg.svd"], "ours": over["sg.svd"], "svd_over_eigh": ratio}


@computes("gradients/G6")
def rounding_over_gap() -> Mapping[str, Value]:
    """The plain error over u/gap: torch's eigh, our eigh, and our root, at the gaps 1e-4, 1e-6, 1e-8, 1e-10."""
    found = plain_errors()
    return {
        "torch": _over_rounding(found["torch.linalg.eigh"]),
        "ours": _over_rounding(found["sg.eigh"]),
        "fused": _over_rounding(found["sg.matrix_inv_sqrt"]),
        "at_1e_8": found["torch.linalg.eigh"][2],
    }


def _over_rounding(errors: list[float]) -> list[float]:
    return [e * gap / EPS for e, gap in zip(errors, (1e-4, 1e-6, 1e-8, 1e-10), strict=True)]


@computes("gradients/G7")
def independent_of_the_gap() -> Mapping[str, Value]:
    """The error of divided differences over the condition number, the largest over the gaps 1e-2 … 1e-14 and 0."""
    worst: dict[str, Value] = {}
    for root in ROOTS:
        errors = []
        for condition in (1e2, 1e6, 1e10):
            of_condition = []
            for gap in (1e-2, 1e-6, 1e-10, 1e-14, 0.0):
                A, reference, G = paired(condition, gap)
                of_condition.append(error(root_by(sg.Exact(), root), A, G, reference.gradient(root, G)))
            errors.append(max(of_condition) / condition)
        worst[root] = errors
    return worst


@computes("gradients/G8")
def errors_that_stay() -> Mapping[str, Value]:
    """The error of Taylor, clipping and truncation in float64: at gap 1e-4, and at 1e-12 for truncation."""
    cases = {"taylor_9": 1e-4, "taylor_100": 1e-4, "clip": 1e-4, "trunc": 1e-12}
    found: dict[str, Value] = {}
    for name, gap in cases.items():
        A, reference, G = paired(1e2, gap)
        found[name] = error(TABLE[name], A, G, reference.gradient("inv_sqrt", G))
    return found
