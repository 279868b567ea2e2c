"""Table 5, the rows of PCA denoising, for 300 steps: whose gradients survive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...published.printed import printed
from ..conditions import Value
from ..registry import draws, trains
from ..small_protocol import columns, failures, seconds, seeded, small, versus
from ..training import Settings, Training
from ..training_pictures import Panel, rows_with_bars

TABLE = printed("neurips")["table-5"]
SEEDS, SIZE = 5, {"train_size": 6_400, "test_size": 2_000, "epochs": 6}
ROWS = {"PCA(SVD)": "svd", "PCA(PI)": "pi", "PCA(Ours)": "svd-pi"}


def settings() -> Settings:
    """Denoising by the three methods, five seeds each."""
    return {row: seeded(small("neurips-cifar10-pca", method=method, **SIZE), SEEDS) for row, method in ROWS.items()}


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
        **{f"pi_{name}": value[0] for name, value in versus(found, ["PCA(PI)"], "PCA(Ours)").items()},
        "pi_difference_published": round(float(TABLE["PCA(PI)"]["mean"][0]) - float(TABLE["PCA(Ours)"]["mean"][0]), 3),
        "failures": failures(found),
        "train_seconds": seconds(found),
    }


@draws("neurips/training-table-5")
def draw_denoising(values: Mapping[str, Any]) -> Any:
    """Mean errors with their deviations; a row without a point did not complete."""
    panel = Panel("PCA denoising, small network", values["rows"], values["mean"], values["sd"])
    return rows_with_bars([panel], "final error in per cent, mean and deviation")
