"""Tables 1–4 at small size, 312 steps: treatments of the convolution before the whitening layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean, median, stdev
from tempfile import TemporaryDirectory
from typing import Any

from ...comparison.results import Summary
from ...data import load_for
from ...training.config.run_config import Config
from ...training.loop.components import build
from ...training.loop.failures import FailureWatch
from ...training.loop.run import train as train_run
from ...training.loop.steps import Stepper, batches
from ...training.processes.surroundings import session
from ...training.storage.checkpoints import load_weights
from ...training.storage.records import Result
from ..departures import departures
from ..registry import draws, trains
from ..small_protocol import columns, difference, failures, largest, prefixed, seconds, small, versus
from ..training import Task, Training
from ..training_pictures import Panel, rows_with_bars
from ..value_conditions import Value
from .training_tables import PLAIN, TREATMENTS, published_mean

SEEDS, RENEWED = 5, 20
SIZE: dict[str, Any] = {
    "train_size": 5_000, "test_size": 2_000, "epochs": 8, "monitor_every": 10, "record": "conditions"
}  # fmt: skip
QUICK = (PLAIN, "SN", "OL", "NOG", "OLR", "NOG+OLR")
# An orthogonal convolution is a series of convolutions with 64 channels: on a CPU a run takes 11 times as long.
ORTHOGONAL = (PLAIN, "OW", "NOG+OW+OLR")
FORMS = ("averaged", "renewed")
PRINTED_KAPPA = {PLAIN: 12, "SN": 5, "NOG": 6, "OLR": 4, "OW": 3}  # powers of ten in Figs 1 to 4


def config(treatment: str, seed: int) -> Config:
    """SVD-Padé in its published form, all 64 channels whitened together, nothing renewed."""
    return small("eccv-cifar100", **SIZE, **TREATMENTS[treatment], seed=seed)


def learn(task: Task) -> Task:
    """Train a network; test it at the end once more with running statistics renewed over 20 batches."""
    chosen = config(task["treatment"], task["seed"]).replaced(data=task["data"])
    with TemporaryDirectory() as name:
        result = train_run(chosen, name)
        renewed = _renewed_error(chosen, Path(name)) if result.status == "done" else None
    return {"result": replace(result, config=chosen.replaced(data=None)).to_dict(), "renewed": renewed}


def _renewed_error(trained: Config, folder: Path) -> float:
    with session(threads=1) as now:
        data = load_for(trained)
        images, test = batches(trained, data, now.group)
        parts = build(trained, images.shape, len(data.classes), now.group)
        parts.net.load_state_dict(load_weights(folder))
        stepper = Stepper(trained.replaced(renew_batches=RENEWED), parts, FailureWatch(parts.net), now.group)
        return stepper.evaluate(test, islice(images.epoch(trained.epochs), RENEWED)).error


@trains("eccv/training-treatments")
def quick_treatments(train: Training) -> Mapping[str, Value]:
    """Treatments of gradient, weight and rate."""
    return _compared(train, QUICK)


@trains("eccv/training-orthogonal-weights")
def orthogonal_weights(train: Training) -> Mapping[str, Value]:
    """Orthogonal weights alone, and with both treatments of the gradient."""
    return _compared(train, ORTHOGONAL)


def _compared(train: Training, names: Sequence[str]) -> dict[str, Value]:
    """Errors with averaged and with renewed statistics, differences from plain SVD, and condition numbers."""
    tasks = train.ready([{"treatment": name, "seed": seed} for seed in range(SEEDS) for name in names])
    found = dict(zip([(t["treatment"], t["seed"]) for t in tasks], train.each(learn, tasks), strict=True))
    values: dict[str, Value] = {"treatments": list(names)}
    for form in FORMS:
        runs = {name: _summary(name, [r for (n, _), r in found.items() if n == name], form) for name in names}
        values |= prefixed(form, {**columns(runs, names), **versus(runs, names, PLAIN)})
    published = [published_mean(name) for name in names]
    return {
        **values,
        "mean_published": published,
        "averaged_difference_published": [round(mean - published_mean(PLAIN), 3) for mean in published],
        **_conditions(runs, names),
        "clear": largest(runs, names, PLAIN),
        "beside_sn": [difference(runs, name, "SN") for name in ("NOG", "OLR")] if "SN" in names else [],
        "failures": failures(runs),
        "departures": departures(train.item.preset, [config(name, seed) for name, seed in found]),
        "train_seconds": seconds(runs),
    }


def _summary(name: str, runs: Sequence[Task], form: str) -> Summary:
    """The runs of a treatment, with the last error that the form has."""
    results = [Result.from_dict(run["result"]) for run in runs]
    if form == "renewed":
        results = [_ending_at(r, run["renewed"]) for r, run in zip(results, runs, strict=True)]
    return Summary(name, None, "", tuple(results))


def _ending_at(result: Result, error: float | None) -> Result:
    if error is None:
        return result
    return replace(result, epochs=[*result.epochs[:-1], replace(result.epochs[-1], test_error=error)])


def _conditions(runs: Mapping[str, Summary], names: Sequence[str]) -> dict[str, Value]:
    """log10 κ with ε, median over a run, mean over seeds; differences from plain SVD paired by seed; κ without ε."""
    with_eps, bare = ({name: _logarithms(runs[name], how) for name in names} for how in ("with ε", "bare"))
    pairs = [[with_eps[name][s] - with_eps[PLAIN][s] for s in with_eps[name] if s in with_eps[PLAIN]] for name in names]
    return {
        "condition": [_mean(with_eps[name].values()) for name in names],
        "bare": [_mean(bare[name].values()) for name in names],
        "condition_difference": [_mean(pair) for pair in pairs],
        "condition_difference_published": [PRINTED_KAPPA.get(name, math.nan) - PRINTED_KAPPA[PLAIN] for name in names],
        "condition_error": [_standard_error(pair) for pair in pairs],
    }


def _logarithms(summary: Summary, how: str) -> dict[int, float]:
    of = {
        run.config.seed: [e.condition if how == "with ε" else e.measured["condition_bare"] for e in run.epochs]
        for run in summary.done
    }
    return {seed: math.log10(median(values)) for seed, values in of.items()}


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return round(fmean(found), 3) if found else math.nan


def _standard_error(values: Sequence[float]) -> float:
    return round(stdev(values) / len(values) ** 0.5, 3) if len(values) > 1 else math.nan


@draws("eccv/training-treatments", "eccv/training-orthogonal-weights")
def draw_treatments(values: Mapping[str, Any]) -> Any:
    """Differences from plain SVD, with averaged and with renewed statistics."""
    rows = values["treatments"]
    panels = [Panel(f"{f} statistics", rows, values[f"{f}_difference"], values[f"{f}_standard_error"]) for f in FORMS]
    return rows_with_bars(panels, "final error minus that of SVD, paired by seed", zero=True)
