"""Figures 2 (right), 3 and 4 (right) and Table 1 over training, at small size: β, λ1/λ2 and condition numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from ...comparison.results import Summary
from ..convergence import draw_curves
from ..drawing import rounded
from ..registry import draws, trains
from ..small_protocol import failures, seconds
from ..training import Settings, Training
from ..value_conditions import Value
from .training_tables import NEWTON_SCHULZ, PRINTED, pooling

METHODS = tuple(PRINTED)
RECORDED = {"smoothness": "β-smoothness", "first_ratio": "λ1/λ2", "condition_clamped": "κ, clamped"}
SIZE: dict[str, Any] = {"train_size": 640, "test_size": 500, "monitor_every": 5, "renew_batches": 5}


def settings() -> Settings:
    """The methods of Table 2 alone, with what the figures show recorded every five steps."""
    return {m: pooling(m, record="smoothness,ratios,conditions", **SIZE) for m in METHODS}


@trains("iccv/training-smoothness")
def over_training(train: Training) -> Mapping[str, Value]:
    """Medians of every epoch, averaged over the runs, and β of each method over β of Newton–Schulz."""
    found = train.run(settings())
    values: dict[str, Value] = {"methods": list(METHODS)}
    values |= {name: [_curve(found[method], name) for method in METHODS] for name in RECORDED}
    last = [_curve(found[method], "smoothness")[-1] for method in METHODS]
    base, kappa = last[METHODS.index(NEWTON_SCHULZ)], _curve(found["svd"], "condition_clamped")
    return {
        **values,
        "over_newton_schulz": rounded(beta / base for beta in last),
        "kappa": kappa,
        "kappa_change": kappa[-1] / kappa[0],
        "first_ratio_svd": _curve(found["svd"], "first_ratio"),
        "failures": failures(found),
        "train_seconds": seconds(found),
    }


@draws("iccv/training-smoothness")
def draw_over_training(values: Mapping[str, Any]) -> Any:
    """One panel per quantity."""
    panels = {title: dict(zip(values["methods"], values[name], strict=True)) for name, title in RECORDED.items()}
    return draw_curves(panels, "median of the epoch", logarithmic=True)


def _curve(summary: Summary, name: str) -> Sequence[float]:
    """The recorded value in each epoch, averaged over the finished runs."""
    runs = [[epoch.measured[name] for epoch in run.epochs] for run in summary.done]
    return rounded(fmean(epoch) for epoch in zip(*runs, strict=True))
