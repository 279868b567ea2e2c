"""Time of the backward pass (Table 5, section 5.5)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

import spectralgrad as sg

from ..conditions import Value
from ..inputs import uniform
from ..registry import computes
from .pade_system import PUBLISHED
from .printed_tables import rows


def looped_taylor(w: Tensor, degree: int) -> Tensor:
    """Σ xᵏ/λ by a loop over the degrees, as in the released code."""
    big = torch.maximum(w.unsqueeze(-1), w.unsqueeze(-2))
    x = torch.minimum(w.unsqueeze(-1), w.unsqueeze(-2)) / big
    power, total = torch.ones_like(x), torch.ones_like(x)
    for _ in range(degree):
        power = power * x
        total = total + power
    return torch.sign(w.unsqueeze(-1) - w.unsqueeze(-2)) * total / big


def milliseconds(f: Callable[[], object]) -> float:
    """The median of seven runs after one to warm up."""
    f()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        f()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


@computes("iccv/P35")
def backward_time() -> Mapping[str, Value]:
    """FP + BP − total of Table 5, and the time of K for 256 eigenvalues by each formula on this machine."""
    table = rows("table-5")
    w = uniform(256, low=0.1).sort().values
    taylor, loop = sg.Taylor(degree=100).gaps(w), looped_taylor(w, 100)
    times = {
        "direct": milliseconds(lambda: sg.Analytic().gaps(w)),
        "loop": milliseconds(lambda: looped_taylor(w, 100)),
        "closed": milliseconds(lambda: sg.Taylor(degree=100).gaps(w)),
        "pade": milliseconds(lambda: PUBLISHED.gaps(w)),
    }
    return {
        "sums": max(abs(round(fp + bp - total, 2)) for fp, bp, total in table.values()),
        "printed_ratio": table["SVD-Padé"][1] / table["SVD-Taylor"][1],
        "same": float((taylor - loop).norm() / loop.norm()),
        "milliseconds": list(times.values()),
        "pade_over_loop": times["pade"] / times["loop"],
        "direct_over_loop": times["direct"] / times["loop"],
        "closed_over_loop": times["closed"] / times["loop"],
    }
