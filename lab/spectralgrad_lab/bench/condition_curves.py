"""Condition numbers over training, as in ECCV 2022, Figs 2–4.

A small network with a whitening layer is trained on the embedded images (with ``--data`` on all of Fashion-MNIST) with
each treatment. There are two regimes: ``wide``, a 5×5 first convolution with 25 inputs for 16 channels, whose
covariance can have full rank; and ``deficient``, a 3×3 convolution with 9 inputs for 16 channels, as in the paper (27
for 64). The orthogonal convolution is the same in both.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from spectralgrad.diagnostics import Monitor
from spectralgrad.diagnostics.table import number, render
from spectralgrad.io.files import require_folder, write_json
from spectralgrad.nn import orthogonality_loss
from spectralgrad.optim import NearestOrthogonalGradient, OptimalLearningRate

from ..data import Split, load
from .networks import first_layer, small

REGIMES = {"wide": 5, "deficient": 3}  # size of the first filters
TREATMENTS = ("plain", "SN", "OL", "OW", "NOG", "OLR", "OLR exact", "NOG+OW", "NOG+OW+OLR")
CHANNELS, EPS, BATCH, RATE, OL_WEIGHT = 16, 1e-6, 64, 0.1, 0.1
_COLORS = {
    "plain": "#000000", "SN": "#999999", "OL": "#CC79A7", "OW": "#E69F00", "NOG": "#009E73", "OLR": "#56B4E9",
    "OLR exact": "#0072B2", "NOG+OW": "#F0E442", "NOG+OW+OLR": "#D55E00",
}  # fmt: skip


def half_size(split: Split) -> tuple[Tensor, Tensor]:
    """Standardized images at half size (N, 1, 14, 14), and labels."""
    assert isinstance(split.images, Tensor)
    return nn.functional.avg_pool2d((split.images / 255 - 0.286) / 0.353, 2), split.labels


def train(
    treatment: str, regime: str, data: dict[str, tuple[Tensor, Tensor]], steps: int, seed: int
) -> dict[str, object]:
    """Train once; returns condition numbers with and without ε, ranks, and the test accuracy."""
    parts = treatment.split("+")
    torch.manual_seed(seed)
    first = first_layer(CHANNELS, REGIMES[regime], "OW" in parts)
    net = small(first, CHANNELS, EPS)
    if "SN" in parts:
        parametrizations.spectral_norm(first)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [steps // 2, 3 * steps // 4])
    if "NOG" in parts:
        NearestOrthogonalGradient(optimizer, first)
    if parts[-1].startswith("OLR"):
        OptimalLearningRate(optimizer, first, objective="exact" if "exact" in treatment else "paper")
    inputs, labels = data["train"]
    with Monitor(net, every=max(1, steps // 60)) as monitor:
        for _ in range(steps):
            chosen = torch.randint(len(inputs), (BATCH,))
            loss = nn.functional.cross_entropy(net(inputs[chosen]), labels[chosen])
            if "OL" in parts:
                loss = loss + OL_WEIGHT * orthogonality_loss(cast(Tensor, first.weight))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
    bare = [(r.eigenvalues[-1] - EPS) / max(r.eigenvalues[0] - EPS, 1e-300) for r in monitor.records]
    bare = [min(x, 1e16) for x in bare]
    return {
        "steps": monitor.series()[0],
        "condition": monitor.series()[1],
        "bare": bare,
        "rank": [sum(x - EPS > 1e-10 * r.eigenvalues[-1] for x in r.eigenvalues) for r in monitor.records],
        "accuracy": accuracy(net, *data["test"]),
    }


@torch.no_grad()
def accuracy(net: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Share of correct predictions; whitening uses the statistics of batches of 500."""
    net.eval()
    right = [(net(x).argmax(1) == y).sum() for x, y in zip(inputs.split(500), labels.split(500), strict=True)]
    return float(sum(right)) / len(labels)


def summary(runs: dict[str, list[dict[str, object]]]) -> str:
    """One row per treatment: medians over the second half of training and over the seeds."""
    rows = []
    for treatment, group in runs.items():
        late = {
            key: statistics.median(x for run in group for x in run[key][len(run[key]) // 2 :])  # type: ignore[index, arg-type]
            for key in ("condition", "bare", "rank")
        }
        mean = statistics.mean(float(run["accuracy"]) for run in group)  # type: ignore[arg-type]
        rows.append(
            [
                treatment,
                number(late["condition"]),
                number(late["bare"]),
                f"{late['rank']:.0f}/{CHANNELS}",
                f"{mean:.1%}",
            ]
        )
    return render(["", f"κ with ε = {EPS:g}", "κ without ε", "rank", "test accuracy"], rows)


def plot(path: Path, results: dict[str, dict[str, list[dict[str, object]]]]) -> None:
    """Plot one panel per regime and one line per treatment, the median over the seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.4), dpi=150, facecolor="white", layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False).flatten()
    for axes, (regime, runs) in zip(panels, results.items(), strict=True):
        for treatment, group in runs.items():
            values = np.median([run["condition"] for run in group], axis=0)
            axes.plot(group[0]["steps"], values, label=treatment, color=_COLORS[treatment], linewidth=1.6)
        axes.set(
            yscale="log", xlabel="training step", title=f"{regime}: {REGIMES[regime]}×{REGIMES[regime]} first filters"
        )
        axes.grid(color="#E6E6E6", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(f"condition number of the covariance + {EPS:g} I")
    panels[-1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    figure.savefig(path)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the study."""
    parser.description = __doc__
    parser.add_argument("--data", type=Path, help="folder of Fashion-MNIST's IDX files (default: the embedded ones)")
    parser.add_argument("--steps", type=int, default=400, help="training steps of each run (default: 400)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each treatment (default: 3)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot to write")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for all figures")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Train with every treatment, print the tables, write the plot and the figures."""
    for target in (options.plot, options.json):
        require_folder(target)
    dataset = load("fashion") if options.data is None else load("fashion-mnist", options.data)
    data = {"train": half_size(dataset.train), "test": half_size(dataset.test)}
    results: dict[str, dict[str, list[dict[str, object]]]] = {}
    for regime in REGIMES:
        runs = results[regime] = {}
        for treatment in TREATMENTS:
            if "OW" in treatment and regime != "wide":
                runs[treatment] = results["wide"][treatment]
                continue
            runs[treatment] = [train(treatment, regime, data, options.steps, seed) for seed in range(options.seeds)]
        print(f"{regime}: medians over the second half of {options.steps} steps, {options.seeds} seeds")
        print(summary(runs), "\n", flush=True)
    if options.plot:
        plot(options.plot, results)
    if options.json:
        write_json(options.json, results)
