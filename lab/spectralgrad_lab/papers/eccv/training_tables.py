"""Tables 1–4 at small size: treatments of the convolution before the whitening layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...published.printed import printed
from ..registry import draws, trains
from ..small_protocol import EASIER, columns, failures, largest, seconds, seeded, small, versus
from ..training import Settings, Training
from ..training_pictures import Panel, rows_with_bars
from ..value_conditions import Value

TREATMENTS: dict[str, dict[str, Any]] = {
    "SVD": {},
    "SN": {"weights": "sn"},
    "OL": {"weights": "ol"},
    "OW": {"weights": "ow"},
    "NOG": {"nog": True},
    "NOG+SN": {"nog": True, "weights": "sn"},
    "NOG+OL": {"nog": True, "weights": "ol"},
    "NOG+OW": {"nog": True, "weights": "ow"},
    "OLR": {"olr": True},
    "NOG+OLR": {"nog": True, "olr": True},
    "OW+OLR": {"weights": "ow", "olr": True},
    "NOG+OW+OLR": {"nog": True, "weights": "ow", "olr": True},
    "NS": {"method": "newton-schulz"},
    "batchnorm": {"layer": "batchnorm", "method": "exact"},
}
PLAIN = "SVD"
# An orthogonal convolution is a series of convolutions with 64 channels: on a CPU a step takes 18 times as long.
SIZE: dict[str, Any] = {
    **EASIER, "train_size": 1_000, "test_size": 1_000, "epochs": 2, "milestones": (1,), "renew_batches": 10
}  # fmt: skip


def settings() -> Settings:
    """One setting per treatment, with SVD-Padé in its published form and all 64 channels whitened together."""
    return {name: seeded(small("eccv-cifar10", **SIZE, **changes)) for name, changes in TREATMENTS.items()}


@trains("eccv/training-tables")
def treatments(train: Training) -> Mapping[str, Value]:
    """Errors beside those printed (ResNet-50 on CIFAR-100), condition numbers, and differences from plain SVD."""
    found = train.run(settings())
    names = list(TREATMENTS)
    return {
        "treatments": names,
        **columns(found, names),
        **versus(found, names, PLAIN),
        "mean_published": [published_mean(name) for name in names],
        "difference_published": [round(published_mean(name) - published_mean(PLAIN), 3) for name in names],
        "condition": [float(f"{found[name].condition:.4g}") for name in names],
        "clear": largest(found, names, PLAIN),
        "failures": failures(found),
        "train_seconds": seconds(found),
    }


def published_mean(name: str) -> float:
    """The mean error on CIFAR-100 that any of the tables prints for a treatment."""
    rows = [row for table in ("table-1", "table-2", "table-3", "table-4") for row in printed("eccv")[table]["row"]]
    means = [row["cifar100"]["mean"] for row in rows if row["treatment"] == name and "mean" in row["cifar100"]]
    return float(means[0]) if means else math.nan


@draws("eccv/training-tables")
def draw_treatments(values: Mapping[str, Any]) -> Any:
    """Differences from plain SVD."""
    panel = Panel("treatments", values["treatments"], values["difference"], values["standard_error"])
    return rows_with_bars([panel], "final error minus that of SVD, paired by seed", zero=True)
