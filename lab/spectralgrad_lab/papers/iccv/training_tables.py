"""Tables 2 and 11 at small size: covariance pooling by Newton–Schulz, by the SVD, and by one after the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...comparison.results import Summary
from ...published.printed import printed
from ...training.config.run_config import Config
from ..registry import draws, trains
from ..small_protocol import EASIER, columns, difference, failures, largest, prefixed, seconds, seeded, small, versus
from ..training import Settings, Training
from ..training_pictures import Panel, rows_with_bars
from ..value_conditions import Value

TABLE_2, TABLE_11 = printed("iccv")["table-2"]["rows"], printed("iccv")["table-11"]["rows"]
NEWTON_SCHULZ = "newton-schulz"
PRINTED = {
    "newton-schulz": "iSQRT-COV",
    "svd": "MPN-COV",
    "svd-pade": "SVD-Padé",
    "svd-taylor": "SVD-Taylor",
    "svd-newton": "SVD-Newton",
    "svd-trunc": "SVD-Trunc",
}
STANDALONE = (*PRINTED, "exact")
HYBRID = ("svd-pade", "svd-taylor", "svd", "exact")
PRECISION = ("newton-schulz, float32", "svd, float32")
WARMUPS = (0, 1, 2, 3)
LONGER, LONGER_MILESTONES = 5, (4,)
SIZE = {**EASIER, "train_size": 3_000, "test_size": 3_000}


def pooling(method: str, hybrid: str | None = None, **changes: Any) -> list[Config]:
    """Covariance pooling of the last 64 channels in float64, published form, three seeds."""
    return seeded(small("iccv-alexnet", method=method, hybrid=hybrid, **{**SIZE, **changes}))


def table_settings() -> Settings:
    """Each method alone, after Newton–Schulz with one epoch of warm-up, and two of them in single precision."""
    return {
        **{method: pooling(method) for method in STANDALONE},
        **{f"hybrid {method}": pooling(NEWTON_SCHULZ, method) for method in HYBRID},
        **{name: pooling(name.partition(",")[0], spectral_precision="float32") for name in PRECISION},
    }


@trains("iccv/training-table-2")
def table(train: Training) -> Mapping[str, Value]:
    """Errors beside those printed, and differences from Newton–Schulz, paired by seed."""
    found = train.run(table_settings())
    hybrid = [f"hybrid {method}" for method in HYBRID]
    return {
        "methods": list(STANDALONE),
        "hybrid_methods": list(HYBRID),
        **prefixed("standalone", _compared(found, STANDALONE)),
        "standalone_mean_published": [_printed(method, 0) for method in STANDALONE],
        "standalone_difference_published": published_gains("standalone", STANDALONE),
        **prefixed("hybrid", _compared(found, hybrid)),
        "hybrid_mean_published": [_printed(method, 2) for method in HYBRID],
        "hybrid_difference_published": published_gains("hybrid", HYBRID),
        "svd_behind": difference(found, "svd", NEWTON_SCHULZ),
        "pade_behind": difference(found, "svd-pade", NEWTON_SCHULZ),
        "exact_behind": difference(found, "exact", NEWTON_SCHULZ),
        "exact_from_svd": difference(found, "exact", "svd"),
        "hybrid_gain": difference(found, "hybrid svd-pade", "svd-pade"),
        "clear": largest(found, list(found), NEWTON_SCHULZ),
        "failures": failures(found),
        "train_seconds": seconds(found),
    }


def warmup_settings() -> Settings:
    """Newton–Schulz throughout, and SVD-Padé from 0 … 3 epochs before the last milestone on; five epochs."""
    longer: dict[str, Any] = {"epochs": LONGER, "milestones": LONGER_MILESTONES}
    return {
        **{f"warm-up {w}": pooling(NEWTON_SCHULZ, "svd-pade", warmup_epochs=w, **longer) for w in WARMUPS},
        NEWTON_SCHULZ: pooling(NEWTON_SCHULZ, **longer),
    }


@trains("iccv/training-table-11")
def warmup(train: Training) -> Mapping[str, Value]:
    """Final and best errors beside those printed, and differences from Newton–Schulz throughout."""
    found = train.run(warmup_settings())
    names = list(found)
    rows = ("no warm-up", "1 epoch", "2 epochs", "3 epochs", "iSQRT-COV")
    means = [float(TABLE_11[row][0]) for row in rows]
    return {
        "settings": names,
        **_compared(found, names),
        "mean_published": means,
        "difference_published": [round(mean - means[-1], 3) for mean in means],
        "best_published": [float(TABLE_11[row][2]) for row in rows],
        "clear": largest(found, names, NEWTON_SCHULZ),
        "failures": failures(found),
        "train_seconds": seconds(found),
    }


def _compared(found: Mapping[str, Summary], names: Sequence[str]) -> dict[str, list[float]]:
    return {**columns(found, names), **versus(found, names, NEWTON_SCHULZ)}


def published_gains(kind: str, methods: Sequence[str]) -> list[float]:
    """Top-1 errors of Table 2 minus Newton–Schulz's, alone or after Newton–Schulz."""
    column = {"standalone": 0, "hybrid": 2}[kind]
    return [round(_printed(method, column) - _printed(NEWTON_SCHULZ, column), 3) for method in methods]


def _printed(method: str, column: int) -> float:
    return float(TABLE_2[PRINTED[method]][column]) if method in PRINTED else math.nan


BEHIND = "final error minus that of Newton–Schulz, paired by seed"


@draws("iccv/training-table-2")
def draw_table(values: Mapping[str, Any]) -> Any:
    """Differences from Newton–Schulz: methods alone, and after Newton–Schulz."""
    panels = [
        Panel(title, values[rows], values[f"{kind}_difference"], values[f"{kind}_standard_error"])
        for title, rows, kind in (("alone", "methods", "standalone"), ("hybrid", "hybrid_methods", "hybrid"))
    ]
    return rows_with_bars(panels, BEHIND, zero=True)


@draws("iccv/training-table-11")
def draw_warmup(values: Mapping[str, Any]) -> Any:
    """Differences from Newton–Schulz throughout."""
    panel = Panel("hybrid SVD-Padé", values["settings"], values["difference"], values["standard_error"])
    return rows_with_bars([panel], BEHIND, zero=True)
