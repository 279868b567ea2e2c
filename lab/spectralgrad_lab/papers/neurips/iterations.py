"""How many power iterations a ratio of eigenvalues needs (Table 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

import spectralgrad as sg

from ..conditions import Value
from ..registry import computes

RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99, 0.995, 0.999)


def left_out(terms: int, ratio: float) -> float:
    """The share of 1/(λi − λj) that a series of so many terms leaves out, as the library's rule states it."""
    return float(sg.SVDPI(iterations=terms).bias(torch.tensor([ratio, 1.0], dtype=torch.float64))[1, 0])


@computes("neurips/B7")
def table_1() -> Mapping[str, Value]:
    """The smallest k with ratio^k ≤ 5 %, by trying, and by the formula in the table's header."""
    iterations = [next(k for k in range(1, 10**4) if left_out(k, ratio) <= 0.05) for ratio in RATIOS]
    header = [math.ceil(math.log(0.01) / math.log(ratio) - 1e-9) for ratio in RATIOS]
    return {"iterations": iterations, "header": header, "header_matches": header == iterations}
