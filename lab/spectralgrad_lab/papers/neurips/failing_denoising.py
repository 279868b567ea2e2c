"""Table 5 for 300 steps: whose gradients survive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...comparison.results import Summary
from ...published.printed import printed
from ..registry import draws, trains
from ..small_protocol import columns, failures, prefixed, seconds, seeded, small, versus
from ..training import Settings, Training
from ..training_pictures import Panel, rows_with_bars
from ..value_conditions import Value

TABLE = printed("neurips")["table-5"]
SEEDS, SIZE = 5, {"train_size": 6_400, "test_size": 2_000, "epochs": 6}
METHODS = {"PCA(SVD)": "svd", "PCA(PI)": "pi", "PCA(Ours)": "svd-pi"}
ROWS = (*METHODS, "BN")


def settings() -> Settings:
    """Denoising by the three methods, and batch normalization, five seeds each."""
    rows = {row: small("neurips-cifar10-pca", method=method, **SIZE) for row, method in METHODS.items()}
    rows["BN"] = small("neurips-cifar10-pca", layer="batchnorm", method="exact", statistics="covariance", **SIZE)
    return {row: seeded(config, SEEDS) for row, config in rows.items()}


@trains("neurips/training-table-5")
def denoising(train: Training) -> Mapping[str, Value]:
    """The share of runs that complete, their errors beside those printed, and power iteration's paired difference."""
    found = train.run(settings())
    table = columns(found, ROWS)
    return {
        "rows": list(ROWS),
        **table,
        "svd_success": table["success"][0],
        "others_success": table["success"][1:],
        "mean_published": [float(TABLE[row]["mean"] if row == "PCA(SVD)" else TABLE[row]["mean"][0]) for row in ROWS],
        **prefixed("pi", _less(found, "PCA(PI)", "PCA(Ours)")),
        **prefixed("ours", _less(found, "PCA(Ours)", "BN")),
        "failures": failures(found),
        "train_seconds": seconds(found),
    }


def _less(found: Mapping[str, Summary], row: str, other: str) -> dict[str, float]:
    """The error of a row minus that of another, paired by seed, beside the difference of the printed means."""
    published = float(TABLE[row]["mean"][0]) - float(TABLE[other]["mean"][0])
    values = {name: value[0] for name, value in versus(found, [row], other).items()}
    return {**values, "difference_published": round(published, 3)}


@draws("neurips/training-table-5")
def draw_denoising(values: Mapping[str, Any]) -> Any:
    """Mean errors with their deviations; a row without a point did not complete."""
    panel = Panel("PCA denoising, small network", values["rows"], values["mean"], values["sd"])
    return rows_with_bars([panel], "final error in per cent, mean and deviation")
