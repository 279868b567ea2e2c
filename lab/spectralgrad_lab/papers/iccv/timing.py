"""Times of forward and backward pass (Table 5, section 5.5)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.nn import CovariancePooling

from ...networks import in_form
from ..drawing import COLORS, canvas, dress
from ..inputs import uniform
from ..registry import computes, draws
from ..value_conditions import Value
from .pade_system import PUBLISHED
from .printed_tables import rows
from .small_eigenvalues import CHANNELS, features

METHODS = {
    "iSQRT-COV": "newton-schulz",
    "SVD-Padé": "svd-pade",
    "SVD-Taylor": "svd-taylor",
    "SVD-Newton": "svd-newton",
    "SVD-Trunc": "svd-trunc",
    "SVD-TopN": "svd-topn",
    "MPN-COV": "svd",
}
BATCH = 8


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


def passes(method: sg.Method, M: Tensor) -> tuple[float, float]:
    """Milliseconds of the forward and of the backward pass of the square root."""
    Q = sg.matrix_sqrt(M, method=method)
    backward = milliseconds(lambda: torch.autograd.grad(Q, M, torch.ones_like(Q), retain_graph=True))
    return milliseconds(lambda: sg.matrix_sqrt(M, method=method)), backward


@computes("iccv/table-5-times")
def layer_times() -> Mapping[str, Value]:
    """Milliseconds of both passes of the root of eight 256 × 256 covariances, published form, float64."""
    M = sg.covariance(torch.stack([features(seed) for seed in range(BATCH)])).requires_grad_()
    times = [passes(in_form("published", method, CovariancePooling(CHANNELS)), M) for method in METHODS.values()]
    forward, backward = zip(*times, strict=True)
    table = rows("table-5")
    ours = dict(zip(METHODS, times, strict=True))
    return {
        "methods": list(METHODS),
        "forward": [round(t, 2) for t in forward],
        "backward": [round(t, 2) for t in backward],
        "forward_printed": [1e3 * table[name][0] for name in METHODS],
        "backward_printed": [1e3 * table[name][1] for name in METHODS],
        "iterations_slower_backward": ours["iSQRT-COV"][1] / ours["MPN-COV"][1],
        "iterations_faster_forward": ours["iSQRT-COV"][0] / ours["MPN-COV"][0],
        "newton_slowest": max(ours, key=lambda name: sum(ours[name])) == "SVD-Newton",
    }


@draws("iccv/table-5-times")
def draw_layer_times(values: Mapping[str, Any]) -> Any:
    """Bars of both passes, here and in the paper, whose batch is 16 times as large."""
    figure, axes = canvas(1, 2, width=4.8, height=3.2)
    panels = (("", "this CPU, 8 matrices"), ("_printed", "printed, 128 matrices, GPU and CPU"))
    for place, (suffix, title) in zip(axes, panels, strict=True):
        heights = range(len(values["methods"]))
        forward, backward = values[f"forward{suffix}"], values[f"backward{suffix}"]
        place.barh(heights, forward, color=COLORS["sky"], label="forward")
        place.barh(heights, backward, left=forward, color=COLORS["orange"], label="backward")
        place.set_yticks(heights, values["methods"])
        place.invert_yaxis()
        dress(place, xlabel="milliseconds", legend="lower right")
        place.set_title(title, fontsize=9, loc="left")
    return figure
