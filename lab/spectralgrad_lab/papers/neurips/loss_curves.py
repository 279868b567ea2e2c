"""Figures 2 and 4 at small size: how steadily the training loss falls, with power iteration and with SVD-PI."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from ...comparison.results import Summary
from ..convergence import TRAIN_LOSS, apart, curves, draw_curves, unsteadiness
from ..registry import draws, trains
from ..small_protocol import failures, seconds, seeded, small
from ..training import Settings, Training
from ..value_conditions import Value
from .failing_denoising import settings as denoising_settings

SIZES, SEEDS = (8, 4), 5
METHODS = {"PI": "pi", "SVD-PI": "svd-pi"}
SIZE: dict[str, Any] = {"train_size": 6_400, "test_size": 1_000, "epochs": 10}  # 50 steps an epoch


def settings() -> Settings:
    """Whitening in groups of 8 and of 4, by power iteration and by the paper's method, for 500 steps."""
    return {
        f"{name} d={d}": seeded(small("neurips-cifar10", method=method, group_size=d, **SIZE), SEEDS)
        for d, (name, method) in product(SIZES, METHODS.items())
    }


@trains("neurips/figure-2")
def whitening_losses(train: Training) -> Mapping[str, Value]:
    """How much more the loss rises with power iteration than with SVD-PI, for d = 8 and 4, and which runs fail."""
    found = train.run(settings())
    names = [(f"PI d={d}", f"SVD-PI d={d}") for d in SIZES]
    rises = [unsteadiness(found[pi], found[ours], TRAIN_LOSS) for pi, ours in names]
    return {
        **_steadiness(found, {"pi": [pi for pi, _ in names], "ours": [ours for _, ours in names]}),
        **_columns("rises", rises),
        **_columns("behind", [_last(found[pi], found[ours]) for pi, ours in names]),
    }


@trains("neurips/figure-4")
def denoising_losses(train: Training) -> Mapping[str, Value]:
    """The same for PCA denoising, against SVD-PI and against batch normalization."""
    found = train.of("neurips/training-table-5").run(denoising_settings())
    pi, others = "PCA(PI)", ["PCA(Ours)", "BN"]
    rises = [unsteadiness(found[pi], found[name], TRAIN_LOSS) for name in others]
    return {
        **_steadiness(found, {"pi": [pi], "ours": [others[0]], "bn": [others[1]]}),
        **_columns("rises", rises),
        **_columns("behind", [_last(found[pi], found[name]) for name in others]),
    }


def _steadiness(found: Mapping[str, Summary], groups: Mapping[str, Sequence[str]]) -> dict[str, Value]:
    """The completed runs of each group in per cent, its mean losses by epoch, and why runs failed."""
    values: dict[str, Value] = {}
    for group, names in groups.items():
        values[f"{group}_success"] = [round(found[name].success, 1) for name in names]
        values[f"{group}_losses"] = curves(found, names, TRAIN_LOSS)
    chosen = {name: found[name] for names in groups.values() for name in names}
    return {**values, "failures": failures(chosen), "train_seconds": seconds(chosen)}


def _last(one: Summary, other: Summary) -> tuple[float, float]:
    """The difference of the losses of the last epoch, paired by seed, and its standard error; NaN without a pair."""
    means, errors = apart(one, other, TRAIN_LOSS)
    return (means[-1], errors[-1]) if means else (math.nan, math.nan)


def _columns(name: str, found: Sequence[tuple[float, float]]) -> dict[str, Value]:
    return {name: [mean for mean, _ in found], f"{name}_error": [error for _, error in found]}


@draws("neurips/figure-2")
def draw_whitening(values: Mapping[str, Any]) -> Any:
    """Mean losses of the completed runs; two panels: groups of 8 and of 4."""
    panels = {
        f"ZCA whitening, d = {d}": {"power iteration": values["pi_losses"][i], "SVD-PI": values["ours_losses"][i]}
        for i, d in enumerate(SIZES)
    }
    return draw_curves(panels, "training loss")


@draws("neurips/figure-4")
def draw_denoising(values: Mapping[str, Any]) -> Any:
    """One panel with three lines."""
    lines = {"power iteration": values["pi_losses"][0], "SVD-PI": values["ours_losses"][0]}
    return draw_curves(
        {"PCA denoising, 99 % kept": {**lines, "batch normalization": values["bn_losses"][0]}}, "training loss"
    )
