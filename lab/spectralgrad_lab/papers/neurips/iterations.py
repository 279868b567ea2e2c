"""How many power iterations a ratio of eigenvalues needs (Table 1, section 2.4, Figure 1)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping

import torch

import spectralgrad as sg
from spectralgrad_lab.published.printed import printed

from ..fifty_digits import mp
from ..inputs import pair_gap
from ..registry import computes
from ..value_conditions import Value

TABLE = printed("neurips")["table-1"]
RATIOS = tuple(float(ratio) for ratio in TABLE["ratio"])
LOST = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)  # ratios whose cells cannot be read in the text at hand


def left_out(terms: int, ratio: float) -> float:
    """The share of 1/(λi − λj) that a series of so many terms leaves out, as the library's rule states it."""
    return float(sg.SVDPI(iterations=terms).bias(torch.tensor([ratio, 1.0], dtype=torch.float64))[1, 0])


def needed(ratio: float, share: float) -> int:
    """The smallest k with ratio^k ≤ share, found by bisection."""
    return 1 + bisect_left(range(1, 10**4), True, key=lambda k: left_out(k, ratio) <= share)


@computes("neurips/B7")
def table_1() -> Mapping[str, Value]:
    """The smallest k with ratio^k ≤ 5 %, by the library's rule, and by the formula in the table's header."""
    share, header_share = float(TABLE["share"]), float(TABLE["header_share"])
    iterations = [needed(ratio, share) for ratio in RATIOS]
    header = [math.ceil(math.log(header_share) / math.log(ratio) - 1e-9) for ratio in (*LOST, *RATIOS)]
    return {
        "iterations": iterations,
        "others": [needed(ratio, share) for ratio in LOST],
        "header": header,
        "header_matches": header[-len(iterations) :] == iterations,
    }


@computes("neurips/B8")
def rounded_down() -> Mapping[str, Value]:
    """k = ⌊ln 0.05/ln ratio⌋ at the ratios of Table 1, and what share is left after so many iterations."""
    floors = [math.floor(math.log(float(TABLE["share"])) / math.log(ratio)) for ratio in RATIOS]
    return {"floors": floors, "left_out": [left_out(k, ratio) for k, ratio in zip(floors, RATIOS, strict=True)]}


@computes("neurips/B9")
def nineteen() -> Mapping[str, Value]:
    """ratio^19 at the ends and in the middle of the interval [0.84, 0.86], and the k that 0.86 needs."""
    return {"left_out": [left_out(19, ratio) for ratio in (0.84, 0.85, 0.86)], "needed": needed(0.86, 0.05)}


@computes("neurips/B10")
def terms() -> Mapping[str, Value]:
    """The library's 19 iterations against Σ x^k for k < 19 and for k < 20 at 50 digits, x = 3/4."""
    x, ours = mp.mpf(3) / 4, pair_gap(sg.SVDPI(), 0.75)
    sums = [mp.fsum(x**k for k in range(n)) for n in (19, 20)]
    return {"to_19_terms": float(abs(ours / sums[0] - 1)), "to_20_terms": float(abs(ours / sums[1] - 1))}


@computes("neurips/B20")
def surface() -> Mapping[str, Value]:
    """The surface ratio^k on a grid: the share that the library's series leaves out, and where it falls with k."""
    grid = [(k, i / 20) for k in (1, 2, 5, 10, 19, 50, 100) for i in range(1, 20)]
    deviation = max(abs(left_out(k, ratio) - ratio**k) for k, ratio in grid)
    falls = all(left_out(k + 1, ratio) < left_out(k, ratio) for k, ratio in grid if ratio**k > 1e-9)
    return {"deviation": deviation, "falls": falls, "at_0999_after_100": left_out(100, 0.999)}
