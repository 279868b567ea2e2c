"""Figures 5 and 6 at small size: convergence of the runs of Tables 3 and 4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..convergence import LOSS, TEST, TRAIN, apart, curves, draw_curves, unsteadiness
from ..registry import draws, trains
from ..training import Training
from ..value_conditions import Value
from .training_tables import SIZES, table_settings, taylor_settings

METHODS = ("svd-taylor", "svd-pi", "pi")


@trains("tpami/figure-5")
def hyperparameters(train: Training) -> Mapping[str, Value]:
    """Errors and test losses of SVD-Taylor in each epoch, by ε and degree; rises of the test loss are summed."""
    found = train.of("tpami/training-table-3").run(taylor_settings())
    names = list(found)
    difference, error = apart(found[names[0]], found[names[-1]], TRAIN)
    unsteady, unsteady_error = unsteadiness(found[names[0]], found[names[-1]], LOSS)
    return {
        "settings": names,
        "train": curves(found, names, TRAIN),
        "test": curves(found, names, TEST),
        "loss": curves(found, names, LOSS),
        "difference": difference,
        "last_difference": difference[-1],
        "standard_error": error,
        "unsteady": unsteady,
        "unsteady_error": unsteady_error,
    }


@draws("tpami/figure-5")
def draw_hyperparameters(values: Mapping[str, Any]) -> Any:
    """Training and test errors, and test losses."""
    kinds = {"training error in per cent": "train", "test error in per cent": "test", "test loss": "loss"}
    return draw_curves(
        {title: dict(zip(values["settings"], values[key], strict=True)) for title, key in kinds.items()},
        "mean of eight runs",
    )


@trains("tpami/figure-6")
def dimensions(train: Training) -> Mapping[str, Value]:
    """Training errors of the three methods in each epoch for each d, and how far SVD-Taylor is ahead in the first."""
    found = train.of("tpami/training-table-4").run(table_settings())
    values: dict[str, Value] = {"d": list(SIZES), "methods": list(METHODS)}
    for d in SIZES:
        values[f"train_{d}"] = curves(found, [f"{method} d={d}" for method in METHODS], TRAIN)
    first = [apart(found[f"svd-taylor d={d}"], found[f"svd-pi d={d}"], TRAIN) for d in SIZES]
    return {**values, "ahead": [mean[0] for mean, _ in first], "standard_error": [error[0] for _, error in first]}


@draws("tpami/figure-6")
def draw_dimensions(values: Mapping[str, Any]) -> Any:
    """One panel per dimension."""
    panels = {f"d = {d}": dict(zip(values["methods"], values[f"train_{d}"], strict=True)) for d in values["d"]}
    return draw_curves(panels, "training error in per cent")
