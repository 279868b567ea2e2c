"""Figures 1, 2 (left), 4 (left) and 5 at small size: convergence of the runs of Table 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import stdev
from typing import Any

from ..convergence import TEST, TRAIN, apart, curves, draw_curves, moved_apart
from ..registry import draws, trains
from ..small_protocol import failures
from ..training import Training
from ..value_conditions import Value
from .training_tables import HYBRID, NEWTON_SCHULZ, PRECISION, PRINTED, published_gains, table_settings

TABLE = "iccv/training-table-2"
REMEDIES = tuple(PRINTED)
FULL = ("newton-schulz", "svd")


@trains("iccv/figure-1")
def gap_of_remedies(train: Training) -> Mapping[str, Value]:
    """Training and test errors of all methods alone, and how far plain SVD is behind Newton–Schulz in each epoch."""
    found = train.of(TABLE).run(table_settings())
    behind, error = apart(found["svd"], found[NEWTON_SCHULZ], TRAIN)
    change, change_error = moved_apart(found["svd"], found[NEWTON_SCHULZ], TRAIN)
    both = {"train": curves(found, REMEDIES, TRAIN), "test": curves(found, REMEDIES, TEST)}
    return {
        "methods": list(REMEDIES),
        **both,
        "behind": behind,
        "standard_error": error,
        "change": change,
        "change_error": change_error,
    }


@trains("iccv/training-seeds")
def seeds(train: Training) -> Mapping[str, Value]:
    """How much the final errors of SVD-Padé differ between seeds."""
    errors = [run.final_error for run in train.of(TABLE).run(table_settings())["svd-pade"].done]
    low, high = min(errors), max(errors)
    return {"lowest": low, "highest": high, "spread": round(high - low, 3), "deviation": round(stdev(errors), 3)}


@draws("iccv/figure-1")
def draw_gap(values: Mapping[str, Any]) -> Any:
    """Training errors on the left, test errors on the right."""
    return _two_panels(values, "methods", {"training error": "train", "test error": "test"})


@trains("iccv/figure-2-left")
def precisions(train: Training) -> Mapping[str, Value]:
    """Training errors of both layers in float64 and in float32."""
    found = train.of(TABLE).run(table_settings())
    names = [*FULL, *PRECISION]
    differences = {name: apart(found[name], found[name.partition(",")[0]], TRAIN) for name in PRECISION}
    return {
        "settings": names,
        "train": curves(found, names, TRAIN),
        "success": [found[name].success for name in names],
        "difference": [mean[-1] if mean else float("nan") for mean, _ in differences.values()],
        "standard_error": [error[-1] if error else float("nan") for _, error in differences.values()],
        "failures": failures({name: found[name] for name in names}),
    }


@draws("iccv/figure-2-left")
def draw_precisions(values: Mapping[str, Any]) -> Any:
    """Training errors."""
    return _two_panels(values, "settings", {"training error": "train"})


@trains("iccv/figure-4-left")
def remedies(train: Training) -> Mapping[str, Value]:
    """Training errors of the remedies and of plain SVD, and how far each is ahead of plain SVD in the last epoch."""
    found = train.of(TABLE).run(table_settings())
    names = [name for name in REMEDIES if name != NEWTON_SCHULZ]
    last = [apart(found["svd"], found[name], TRAIN) for name in names]
    return {
        "methods": names,
        "train": curves(found, names, TRAIN),
        "ahead": [mean[-1] for mean, _ in last],
        "standard_error": [error[-1] for _, error in last],
    }


@draws("iccv/figure-4-left")
def draw_remedies(values: Mapping[str, Any]) -> Any:
    """Training errors."""
    return _two_panels(values, "methods", {"training error": "train"})


@trains("iccv/figure-5")
def hybrid(train: Training) -> Mapping[str, Value]:
    """Test errors of hybrid training and of Newton–Schulz throughout, and their differences after the last epoch."""
    found = train.of(TABLE).run(table_settings())
    names = [NEWTON_SCHULZ, *(f"hybrid {method}" for method in HYBRID)]
    last = [apart(found[name], found[NEWTON_SCHULZ], TEST) for name in names[1:]]
    return {
        "settings": names,
        "test": curves(found, names, TEST),
        "difference": [mean[-1] for mean, _ in last],
        "difference_published": published_gains("hybrid", HYBRID),
        "standard_error": [error[-1] for _, error in last],
    }


@draws("iccv/figure-5")
def draw_hybrid(values: Mapping[str, Any]) -> Any:
    """Test errors."""
    return _two_panels(values, "settings", {"test error": "test"})


def _two_panels(values: Mapping[str, Any], names: str, kinds: Mapping[str, str]) -> Any:
    def lines(curves: Sequence[Sequence[float]]) -> dict[str, Sequence[float]]:
        return dict(zip(values[names], curves, strict=True))

    return draw_curves({title: lines(values[key]) for title, key in kinds.items()}, "error in per cent")
