"""How long the gradient of ZCA whitening takes by power iteration and by Taylor expansion (Fig. 7)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

import spectralgrad as sg

from ...published.printed import printed
from ..drawing import COLORS, blank, caption
from ..inputs import KEEP_ALL
from ..registry import computes, draws
from ..value_conditions import Value
from .first_convolution import FILTERS, covariances, first_features

SIZES = (4, 8, 16, 32, 64)
TAYLOR, POWER = sg.Taylor(degree=9), sg.SVDPI(iterations=9, unrolled=True, **KEEP_ALL)
"""Nine iterations and degree nine, as in Fig. 7; power iteration runs step by step, like Algorithm 1."""


def fastest(job: Callable[[], object], seconds: float = 0.3, least: int = 3) -> float:
    """The shortest of repeated runs of a job, in seconds, after one to warm up."""
    job()
    times: list[float] = []
    stop = time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < stop:
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times)


def group_matrices(X: Tensor, d: int) -> list[Tensor]:
    """The covariances of 64/d groups as separate tensors: the paper handles one group after the other."""
    return [M.clone().requires_grad_() for M in covariances(X, d)]


def roots(matrices: list[Tensor], method: sg.Method) -> list[Tensor]:
    """The whitening matrices."""
    return [sg.matrix_inv_sqrt(M, method=method) for M in matrices]


def backward_time(X: Tensor, d: int, method: sg.Method) -> float:
    """Seconds of the backward pass of the whitening matrices."""
    matrices = group_matrices(X, d)
    results = roots(matrices, method)

    def backward() -> None:
        for M, S in zip(matrices, results, strict=True):
            torch.autograd.grad(S, M, torch.ones_like(S), retain_graph=True)

    return fastest(backward)


def forward_time(X: Tensor, d: int, method: sg.Method) -> float:
    """Seconds of the forward pass of the whitening matrices."""
    matrices = group_matrices(X, d)
    return fastest(lambda: roots(matrices, method))


@computes("tpami/R45", "tpami/figure-7")
@cache
def speed() -> Mapping[str, Value]:
    """Milliseconds of the backward pass of both methods for d = 4 … 64, 64 channels in groups of d."""
    X = first_features(0)
    series, power = ([backward_time(X, d, rule) * 1e3 for d in SIZES] for rule in (TAYLOR, POWER))
    rows = printed("tpami")["table-10"]["rows"]
    ratio = [p / t for p, t in zip(power, series, strict=True)]
    return {
        "d": list(SIZES),
        "groups": [FILTERS // d for d in SIZES],
        "taylor": [round(t, 4) for t in series],
        "power": [round(t, 4) for t in power],
        "ratio": ratio,
        "lowest": min(ratio),
        "highest": max(ratio),
        "taylor_falls": series[-1] / series[0],
        "power_falls": power[-1] / power[0],
        "table_10": rows["pi-wct"] / rows["svd-wct"],
    }


@computes("tpami/R46")
def forward_against_backward() -> Mapping[str, Value]:
    """The time of the forward pass over the time of the backward pass with Taylor's gradient, for d = 4 … 32."""
    X = first_features(0)
    ratios = [forward_time(X, d, TAYLOR) / backward_time(X, d, TAYLOR) for d in SIZES[:-1]]
    return {"ratio": ratios, "lowest": min(ratios), "highest": max(ratios)}


@draws("tpami/figure-7")
def draw_speed(values: Mapping[str, Any]) -> Any:
    """Both curves over d on logarithmic axes."""
    figure = blank(6.4, 4.2)
    axes = figure.subplots()
    for name, label, color, marker in (("power", "SVD-PI, 9 iterations", COLORS["blue"], "s"),
                                       ("taylor", "SVD-Taylor, degree 9", COLORS["red"], "o")):  # fmt: skip
        axes.plot(values["d"], values[name], color=color, marker=marker, label=label)
    for d, t, ratio in zip(values["d"], values["taylor"], values["ratio"], strict=True):
        axes.annotate(f"{ratio:.0f}×", (d, t), xytext=(0, 9), textcoords="offset points", ha="center", fontsize=8)
    caption(
        axes,
        "matrix dimension d (64/d groups)",
        "backward pass in ms",
        "on a CPU; the numbers are ratios of the times",
    )
    axes.set_yscale("log")
    axes.set_xscale("log", base=2)
    axes.set_xticks(values["d"], [str(d) for d in values["d"]])
    axes.set_ylim(min(values["taylor"]) / 2, 2 * max(values["power"]))
    axes.legend(frameon=False)
    return figure
