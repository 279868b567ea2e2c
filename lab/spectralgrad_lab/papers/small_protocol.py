"""The papers' protocols at the size of a CPU, and what their results say.

ResNet-8 in place of ResNet-18 or -50, and the first hundreds of steps of 137,000. Everything else is the preset's, or
is named by the item; pages list each departure. What such runs can show: which gradients fail and why, and large
differences. What they cannot: differences of tenths of a per cent after convergence, which is what the papers report.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..comparison.paired_differences import paired
from ..comparison.results import Summary
from ..training.config.presets import preset
from ..training.config.run_config import Config

SEEDS = 3
SIZE: dict[str, Any] = {
    "dataset": "cifar10",
    "network": "resnet8",
    "width": 16,
    "train_size": 5_000,
    "test_size": 5_000,
    "epochs": 5,
    "tensorboard": False,
    "workers": 0,
    "threads": 1,
}
EASIER: dict[str, Any] = {
    "epochs": 3,
    "milestones": (2,),
    "batch_size": 64,
    "lr": 0.05,
    "scale_init": "ones",
    "renew_batches": 20,
}
"""Smaller steps, and running statistics renewed before every test, for items with runs of less than a minute."""


def small(name: str, **changes: Any) -> Config:
    """A preset of a paper at small size.

    Example:
        >>> config = small("tpami-cifar10", group_size=16)
        >>> config.network, config.epochs, config.form, config.eps
        ('resnet8', 5, 'published', 0.01)
    """
    return preset(name).replaced(**{**SIZE, **changes})


def seeded(config: Config, seeds: int = SEEDS) -> list[Config]:
    """The configuration with the seeds 0, 1, 2, …"""
    return [config.replaced(seed=seed) for seed in range(seeds)]


def columns(found: Mapping[str, Summary], names: Iterable[str]) -> dict[str, list[float]]:
    """Success rate, mean final error, its deviation, and the mean of the lowest error of each run, by setting."""
    chosen = [found[name] for name in names]
    return {
        "success": [s.success for s in chosen],
        "mean": [_rounded(s.mean) for s in chosen],
        "sd": [_rounded(s.sd) for s in chosen],
        "best": [_rounded(_mean([r.best_error for r in s.done])) for s in chosen],
    }


def prefixed(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with longer names.

    Example:
        >>> prefixed("svd", {"mean": [1.0]})
        {'svd_mean': [1.0]}
    """
    return {f"{prefix}_{name}": value for name, value in values.items()}


def versus(found: Mapping[str, Summary], names: Sequence[str], baseline: str) -> dict[str, list[float]]:
    """Mean difference of the final error from the baseline, paired by seed, and its standard error, by setting."""
    pairs = [paired(found[name], found[baseline]) for name in names]
    return {
        "difference": [_rounded(p.mean) for p in pairs],
        "standard_error": [_rounded(p.standard_error) for p in pairs],
    }


def difference(found: Mapping[str, Summary], name: str, baseline: str) -> str:
    """A paired difference in words, such as ``"+0.31 ± 0.22"``."""
    return paired(found[name], found[baseline]).text("no pair of finished runs")


def largest(found: Mapping[str, Summary], names: Sequence[str], baseline: str) -> str:
    """Which settings differ from the baseline by more than two standard errors, in words."""
    pairs = {name: paired(found[name], found[baseline]) for name in names if name != baseline}
    clear = [f"{name} {p.text()}" for name, p in pairs.items() if abs(p.mean) > 2 * p.standard_error]
    return "; ".join(clear) or "none"


def failures(found: Mapping[str, Summary]) -> str:
    """How many runs failed in each setting, and for which reasons."""
    failed = {name: s.failed for name, s in found.items() if s.failed}
    where = ", ".join(f"{name} {len(runs)}/{len(found[name].results)}" for name, runs in failed.items())
    reasons = [run.failure.reason for runs in failed.values() for run in runs if run.failure]
    why = Counter(reason.partition(" in position")[0] for reason in reasons)
    return f"{where} ({'; '.join(f'{reason}: {count}' for reason, count in why.items())})" if failed else "none"


def seconds(found: Mapping[str, Summary]) -> float:
    """The time of all runs together, on one core."""
    return round(sum(result.seconds for s in found.values() for result in s.results), 1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _rounded(value: float) -> float:
    return round(value, 3)
