"""Figs 1–5: condition numbers over training under each treatment, on small networks and the embedded images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from ...comparison.condition_curves import TASKS, Curve, Data, half_size, train
from ...comparison.condition_panels import condition_panels
from ...data import load
from ..registry import computes, draws
from ..value_conditions import Value

STEPS, SEEDS = 300, 2
_RUN = f"small networks, 4,000 embedded images (Fashion-MNIST, 14×14), {STEPS} steps, median of {SEEDS} seeds"


@cache
def embedded() -> Data:
    """The embedded images at half size."""
    dataset = load("fashion")
    return {"train": half_size(dataset.train), "test": half_size(dataset.test)}


@cache
def curves(treatment: str, task: str) -> tuple[Curve, ...]:
    """The runs of a treatment, one per seed, trained once and used by all figures."""
    if "OW" in treatment and task == "wide":
        return curves(treatment, "deficient")  # the orthogonal convolution is the same in both
    return tuple(train(treatment, task, embedded(), STEPS, seed) for seed in range(SEEDS))


def late(treatment: str, task: str, name: str = "condition") -> float:
    """The median of a series over the second half of training, and over the seeds."""
    return float(np.median([curve.late(name) for curve in curves(treatment, task)]))


def gains(treatments: Sequence[str], task: str) -> list[float]:
    """How many times smaller κ is than with plain SVD."""
    return [_short(late("SVD", task) / late(treatment, task)) for treatment in treatments]


def drawn(panels: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The lines of each panel: names, log10 κ over the recorded steps, and medians over the second half of training."""
    first = next(iter(panels))
    values: dict[str, Any] = {"steps": curves(panels[first][0], first)[0].steps, "panels": list(panels)}
    for task, treatments in panels.items():
        runs = [np.median([curve.condition for curve in curves(name, task)], axis=0) for name in treatments]
        values[f"{task}_names"] = list(treatments)
        values[f"{task}_curves"] = [[round(math.log10(x), 3) for x in run] for run in runs]
        values[f"{task}_late"] = [round(math.log10(late(name, task)), 3) for name in treatments]
        values[f"{task}_with_eps"] = [round(math.log10(late(name, task, "with_eps")), 3) for name in treatments]
        values[f"{task}_rank"] = [late(name, task, "rank") for name in treatments]
        values[f"{task}_error"] = [_error(name, task) for name in treatments]
    return values


def _error(treatment: str, task: str) -> float:
    return round(100 * (1 - float(np.mean([curve.accuracy for curve in curves(treatment, task)]))), 2)


def _short(x: float) -> float:
    return float(f"{x:.6g}")


@computes("eccv/figure-1")
def figure_1() -> Mapping[str, Value]:
    """Plain SVD, Newton–Schulz and batch normalization; whitening and covariance pooling."""
    whitening, pooling = ("SVD", "NS", "BN"), ("SVD", "NS")
    values = drawn({"deficient": whitening, "wide": whitening, "pooling": pooling})
    gained = {task: gains(names[1:], task) for task, names in (("deficient", whitening), ("pooling", pooling))}
    return {**values, **{f"{task}_gain": gain for task, gain in gained.items()}}


def _whitening(treatments: Sequence[str]) -> dict[str, Any]:
    """Both whitening panels, with plain SVD and Newton–Schulz beside the treatments, and the gain of each treatment."""
    lines = ("SVD", *treatments, "NS")
    values = drawn({"deficient": lines, "wide": lines})
    return {**values, **{f"{task}_gain": gains(treatments, task) for task in ("deficient", "wide")}}


@computes("eccv/figure-2")
def figure_2() -> Mapping[str, Value]:
    """Treatments of the weight."""
    return _whitening(("SN", "OL", "OW"))


@computes("eccv/figure-3")
def figure_3() -> Mapping[str, Value]:
    """The nearest orthogonal gradient, alone and with treatments of the weight."""
    return _whitening(("NOG", "NOG+SN", "NOG+OL", "NOG+OW"))


@computes("eccv/figure-4")
def figure_4() -> Mapping[str, Value]:
    """The optimal learning rate, alone and with treatments of gradient and weight."""
    return _whitening(("OLR", "NOG+OLR", "OW+OLR", "NOG+OW+OLR"))


@computes("eccv/figure-5")
def figure_5() -> Mapping[str, Value]:
    """Covariance pooling."""
    treatments = ("OW", "NOG", "OLR", "NOG+OW", "NOG+OW+OLR", "NS")
    values, gained = drawn({"pooling": ("SVD", *treatments)}), gains(treatments, "pooling")
    return {**values, "pooling_gain": gained, "smallest": min(gained), "largest": max(gained)}


@draws("eccv/figure-1", "eccv/figure-2", "eccv/figure-3", "eccv/figure-4", "eccv/figure-5")
def draw(values: Mapping[str, Any]) -> Any:
    """One panel per network, one line per treatment, κ on a logarithmic axis."""
    panels = {}
    for task in values["panels"]:
        lines = zip(values[f"{task}_names"], values[f"{task}_curves"], strict=True)
        panels[TASKS[task]] = {name: [10**x for x in line] for name, line in lines}
    figure = condition_panels(panels, values["steps"])
    figure.suptitle(_RUN, fontsize=8, color="#555555")
    return figure
