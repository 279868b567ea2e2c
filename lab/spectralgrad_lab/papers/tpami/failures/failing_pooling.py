"""Section 5.2.2 at small size: covariance pooling of 256 channels, 300 steps by SVD-PI, SVD-Taylor and SVD-Padé."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...registry import draws, trains
from ...small_protocol import columns, difference, failures, prefixed, seconds, seeded, small, versus
from ...training import Settings, Training
from ...training_pictures import Panel, rows_with_bars
from ...value_conditions import Value

CHANNELS = 256
SIZE: dict[str, Any] = {
    "width": CHANNELS // 4, "train_size": 2_500, "test_size": 300, "epochs": 3, "batch_size": 25,
    "monitor_every": 25, "record": "kept",
}  # fmt: skip
METHODS = {"SVD-PI": "svd-pi", "SVD-Taylor": "svd-taylor:degree=9", "SVD-Padé": "svd-pade"}
BASELINE = "SVD-Taylor"


def settings() -> Settings:
    """The three methods with the published settings of Table 7, three seeds each."""
    return {name: seeded(small("tpami-alexnet", method=method, **SIZE)) for name, method in METHODS.items()}


@trains("tpami/training-pooling")
def pooling(train: Training) -> Mapping[str, Value]:
    """Success and errors, what the rules of SVD-PI keep, and the paired difference of SVD-PI from SVD-Taylor."""
    found = train.run(settings())
    table = columns(found, METHODS)
    return {
        "methods": list(METHODS),
        **table,
        "pi_success": table["success"][0],
        "kept": [round(found[name].measured("kept"), 1) for name in METHODS],
        "kept_share": [round(found[name].measured("kept_share"), 4) for name in METHODS],
        **prefixed("pi", {name: value[0] for name, value in versus(found, ["SVD-PI"], BASELINE).items()}),
        "behind": difference(found, "SVD-PI", BASELINE),
        "failures": failures(found),
        "train_seconds": seconds(found),
    }


@draws("tpami/training-pooling")
def draw_pooling(values: Mapping[str, Any]) -> Any:
    """Mean errors with their deviations; a row without a point did not complete."""
    panel = Panel("covariance pooling, d = 256", values["methods"], values["mean"], values["sd"])
    return rows_with_bars([panel], "final error in per cent, mean and deviation")
