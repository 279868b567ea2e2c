"""Figure 2 (left), Tables 1 and 2 at small size, in three stages of three epochs: precisions, conditions, hybrids."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from statistics import fmean
from typing import Any

from ...comparison.results import Summary
from ...published.printed import printed
from ...training.config.run_config import Config
from ..convergence import TEST, TRAIN, apart, curves, draw_curves
from ..registry import draws, trains
from ..small_protocol import columns, difference, failures, largest, seconds, seeded, small, versus
from ..training import Settings, Training
from ..training_pictures import Panel, rows_with_bars
from ..value_conditions import Value
from .training_tables import BEHIND, NEWTON_SCHULZ

SEEDS = 5
SIZE: dict[str, Any] = {
    "train_size": 10_000, "test_size": 2_000, "epochs": 9, "milestones": (3, 6), "monitor_every": 26,
    "record": "ratios,conditions",
}  # fmt: skip
DOUBLE = {"iSQRT-COV": NEWTON_SCHULZ, "MPN-COV": "svd"}
SINGLE = {f"{name}, float32": method for name, method in DOUBLE.items()}
TOP = 50  # of 64 channels; the paper keeps 200 of 256
HYBRIDS = {
    "SVD-Padé": "svd-pade", "SVD-Taylor": "svd-taylor", "SVD-Newton": "svd-newton", "SVD-Trunc": "svd-trunc",
    "SVD-TopN": f"svd-topn:keep={TOP}", "MPN-COV": "svd",
}  # fmt: skip
STAGES = 3
TABLE_1, TABLE_2 = (printed("iccv")[name]["rows"] for name in ("table-1", "table-2"))


def pooling(method: str, **changes: Any) -> list[Config]:
    """Covariance pooling of the last 64 channels, published form and settings."""
    return seeded(small("iccv-alexnet", method=method, **SIZE, **changes), SEEDS)


def double_settings() -> Settings:
    """Newton–Schulz and plain SVD in double precision."""
    return {name: pooling(method) for name, method in DOUBLE.items()}


def precision_settings() -> Settings:
    """Newton–Schulz and plain SVD, each in double and in single precision."""
    single = {name: pooling(method, spectral_precision="float32") for name, method in SINGLE.items()}
    return {**double_settings(), **single}


def hybrid_settings() -> Settings:
    """Newton–Schulz until one epoch before the last milestone, then a method of the SVD."""
    return {name: pooling(NEWTON_SCHULZ, hybrid=method) for name, method in HYBRIDS.items()}


@trains("iccv/training-precision")
def precisions(train: Training) -> Mapping[str, Value]:
    """What single precision costs each layer."""
    found = train.run(precision_settings())
    last = [apart(found[name], found[name.partition(",")[0]], TRAIN) for name in SINGLE]
    return {
        "settings": list(found),
        **columns(found, found),
        "train": curves(found, list(found), TRAIN),
        "difference": [mean[-1] if mean else math.nan for mean, _ in last],
        "standard_error": [error[-1] if error else math.nan for _, error in last],
        "failures": failures(found),
        "train_seconds": seconds(found),
    }


@trains("iccv/training-condition")
def conditions(train: Training) -> Mapping[str, Value]:
    """How far plain SVD is behind in double precision, and how its κ and λ1/λ2 change from stage to stage."""
    found = train.of("iccv/training-precision").run(double_settings())
    behind = versus(found, ["MPN-COV"], "iSQRT-COV")
    kappa = _in_stages(found["MPN-COV"], "condition_clamped")
    return {
        "settings": list(found),
        "test": curves(found, list(found), TEST),
        "behind": behind["difference"][0],
        "behind_published": round(TABLE_2["MPN-COV"][0] - TABLE_2["iSQRT-COV"][0], 3),
        "behind_error": behind["standard_error"][0],
        "kappa": kappa,
        "kappa_published": TABLE_1["MPN-COV"],
        "kappa_change": [after / before for before, after in pairwise(kappa)],
        "first_ratio": _in_stages(found["MPN-COV"], "first_ratio"),
        "failures": failures(found),
        "train_seconds": seconds(found),
    }


@trains("iccv/training-hybrid")
def hybrids(train: Training) -> Mapping[str, Value]:
    """Errors after Newton–Schulz, and differences from Newton–Schulz throughout, paired by seed."""
    alone = train.of("iccv/training-precision").run(double_settings())
    found = {**train.run(hybrid_settings()), "iSQRT-COV": alone["iSQRT-COV"]}
    names, base = list(HYBRIDS), TABLE_2["iSQRT-COV"][2]
    return {
        "methods": names,
        **columns(found, names),
        "mean_published": [TABLE_2[name][2] for name in names],
        **versus(found, names, "iSQRT-COV"),
        "difference_published": [round(TABLE_2[name][2] - base, 3) for name in names],
        "gain": difference({**found, "alone": alone["MPN-COV"]}, "MPN-COV", "alone"),
        "clear": largest(found, names, "iSQRT-COV"),
        "failures": failures(found),
        "train_seconds": seconds(found),
    }


def _in_stages(summary: Summary, name: str) -> list[float]:
    """The geometric mean over the runs of what was recorded in the first epoch of each stage."""
    runs = [[math.log(epoch.measured[name]) for epoch in run.epochs] for run in summary.done]
    means = [math.exp(fmean(epoch)) for epoch in zip(*runs, strict=True)]
    return [float(f"{means[len(means) * stage // STAGES]:.4g}") for stage in range(STAGES)]


@draws("iccv/training-precision")
def draw_precisions(values: Mapping[str, Any]) -> Any:
    """Training errors."""
    return draw_curves({"training error": dict(zip(values["settings"], values["train"], strict=True))}, "per cent")


@draws("iccv/training-condition")
def draw_conditions(values: Mapping[str, Any]) -> Any:
    """Test errors in double precision."""
    return draw_curves({"test error": dict(zip(values["settings"], values["test"], strict=True))}, "per cent")


@draws("iccv/training-hybrid")
def draw_hybrids(values: Mapping[str, Any]) -> Any:
    """Differences from Newton–Schulz throughout."""
    panel = Panel("hybrid", values["methods"], values["difference"], values["standard_error"])
    return rows_with_bars([panel], BEHIND, zero=True)
