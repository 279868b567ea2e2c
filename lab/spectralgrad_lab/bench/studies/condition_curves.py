"""Condition numbers over training, as in ECCV 2022, Figs 1–5.

A small network with a whitening layer is trained on the embedded images (with ``--data`` on all of Fashion-MNIST) with
each treatment. There are two whitening tasks: ``wide``, a 5×5 first convolution with 25 inputs for 16 channels, whose
covariance can have full rank; and ``deficient``, a 3×3 convolution with 9 inputs for 16 channels, as in the paper (27
for 64). The orthogonal convolution is the same in both. ``pooling`` is a network with covariance pooling. Condition
numbers are taken of the covariance without ε, as in the paper; the table also has them with ε.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import asdict
from pathlib import Path

import numpy as np

from spectralgrad.diagnostics.table import number, render
from spectralgrad.io.files import PLOTS, path_argument, require_writable, write_json

from ...comparison.condition_curves import EPS, TASKS, TREATMENTS, Curve, Data, half_size, train
from ...comparison.condition_panels import condition_panels
from ...data import load

Runs = dict[str, list[Curve]]


def summary(runs: Runs) -> str:
    """One row per treatment: medians over the second half of training and over the seeds."""
    rows = []
    for treatment, group in runs.items():
        without, with_eps, rank = (
            statistics.median(curve.late(name) for curve in group) for name in ("condition", "with_eps", "rank")
        )
        mean = statistics.mean(curve.accuracy for curve in group)
        rows.append([treatment, number(without), number(with_eps), f"{rank:.0f}", f"{mean:.1%}"])
    return render(["", "κ", f"κ with ε = {EPS:g}", "rank", "test accuracy"], rows)


def plot(path: Path, results: dict[str, Runs]) -> None:
    """Plot one panel per task and one line per treatment, the median over the seeds."""
    panels = {
        TASKS[task]: {
            name: np.median([curve.condition for curve in group], axis=0).tolist() for name, group in runs.items()
        }
        for task, runs in results.items()
    }
    (curve, *_), *_ = next(iter(results.values())).values()
    condition_panels(panels, curve.steps).savefig(path)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the study."""
    parser.description = __doc__
    parser.add_argument(
        "--data", type=path_argument, help="folder of Fashion-MNIST's IDX files (default: the embedded ones)"
    )
    parser.add_argument("--steps", type=int, default=400, help="training steps of each run (default: 400)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each treatment (default: 3)")
    parser.add_argument(
        "--task", nargs="+", choices=tuple(TASKS), default=["wide", "deficient"], help="(default: wide deficient)"
    )
    parser.add_argument("--plot", type=path_argument, metavar="FILE", help="plot to write")
    parser.add_argument("--json", type=path_argument, metavar="FILE", help="file for all figures")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Train with every treatment, print the tables, write the plot and the figures."""
    require_writable(options.json)
    require_writable(options.plot, PLOTS)
    dataset = load("fashion") if options.data is None else load("fashion-mnist", options.data)
    data = {"train": half_size(dataset.train), "test": half_size(dataset.test)}
    results: dict[str, Runs] = {}
    for task in options.task:
        runs = results[task] = {}
        for treatment in _treatments(task):
            done = results.get("wide", {}).get(treatment) if "OW" in treatment and task == "deficient" else None
            runs[treatment] = done or _train(treatment, task, data, options)
        print(f"{task}: medians over the second half of {options.steps} steps, {options.seeds} seeds")
        print(summary(runs), "\n", flush=True)
    if options.plot:
        plot(options.plot, results)
    if options.json:
        write_json(options.json, {t: {n: [asdict(c) for c in g] for n, g in r.items()} for t, r in results.items()})


def _treatments(task: str) -> list[str]:
    """Batch normalization takes the place of whitening, not of pooling."""
    return [treatment for treatment in TREATMENTS if task != "pooling" or treatment != "BN"]


def _train(treatment: str, task: str, data: Data, options: argparse.Namespace) -> list[Curve]:
    return [train(treatment, task, data, options.steps, seed) for seed in range(options.seeds)]
