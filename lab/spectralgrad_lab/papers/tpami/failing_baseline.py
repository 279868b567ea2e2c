"""Table 4, row SVD: the released baseline, of one eigenvector, against roots of all of them, over 20,000 steps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from spectralgrad import eigvalsh
from spectralgrad.errors import SpectralError
from spectralgrad.nn import DecorrelatedBatchNorm2d

from ...data import load
from ...published.printed import printed
from ..conditions import Value
from ..drawing import COLORS, canvas, dress
from ..registry import draws, trains
from ..training import Training

SIZES, SEEDS, STEPS, BATCH, RATE, DECAY, EPS = (4, 8, 16), 5, 20_000, 64, 0.1, 5e-4, 1e-2
METHODS = {
    "released": f"svd:stop={EPS}",
    "svd": "svd",
    "taylor": f"svd-taylor:faithful=True:clamp={EPS}",
    "exact": "exact",
}
LAST = 1_000  # the loss is the mean over so many steps at the end


def tasks() -> list[dict[str, Any]]:
    """One task per seed, dimension and method."""
    return [{"method": m, "d": d, "seed": s} for s, d, m in product(range(SEEDS), SIZES, METHODS)]


@trains("tpami/training-released-svd")
def baselines(train: Training) -> Mapping[str, Value]:
    """For each method and d: completed runs, the smallest relative gap λ1 − λ2, the largest gradient, the loss."""
    planned = tasks()
    results = list(zip(planned, train.each(learn, planned), strict=True))
    values: dict[str, Value] = {
        "d": list(SIZES),
        "released_success_published": printed("tpami")["table-4"]["svd"]["success"][:3],
    }
    for method in METHODS:
        runs = [[r for t, r in results if (t["method"], t["d"]) == (method, d)] for d in SIZES]
        values |= {
            f"{method}_success": [100 * fmean(r["loss"] is not None for r in found) for found in runs],
            f"{method}_loss": [_mean([r["loss"] for r in found if r["loss"] is not None]) for found in runs],
            f"{method}_smallest_gap": [min(r["smallest_gap"] for r in found) for found in runs],
            f"{method}_largest_gradient": [max(r["largest_gradient"] for r in found) for found in runs],
            f"{method}_gaps": [r["smallest_gap"] for found in runs for r in found],
            f"{method}_gradients": [r["largest_gradient"] for found in runs for r in found],
        }
    return {**values, "train_seconds": round(sum(result["seconds"] for _, result in results), 1)}


def _mean(values: list[float]) -> float:
    return round(fmean(values), 4) if values else math.nan


def network(d: int, method: str) -> nn.Sequential:
    """A 3×3 convolution of 64 channels, whitening in groups of d, and a linear classifier."""
    whitening = DecorrelatedBatchNorm2d(
        64, groups=64 // d, eps=EPS, method=method, statistics="whitening", init="uniform"
    )
    first = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    return nn.Sequential(first, whitening, nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(64 * 16, 10))


def learn(task: dict[str, Any]) -> dict[str, Any]:
    """Train one network; ``loss`` is None if loss or gradient became non-finite."""
    torch.set_num_threads(1)
    began, (images, labels) = time.perf_counter(), _crops(task["data"])
    torch.manual_seed(task["seed"])
    net, gaps = network(task["d"], METHODS[task["method"]]), [math.inf]
    net[1].register_spectral_hook(lambda _, M: gaps.append(min(_relative_gap(M), gaps.pop())))  # type: ignore[operator]
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9, weight_decay=DECAY)
    losses, largest = [], 0.0
    for chosen in _batches(len(images), task["seed"]):
        optimizer.zero_grad()
        loss, size = _descended(net, images[chosen], labels[chosen])
        if not math.isfinite(loss + size):
            break
        optimizer.step()
        losses.append(loss)
        largest = max(largest, size)
    return {
        "loss": _mean(losses[-LAST:]) if len(losses) == STEPS else None,
        "steps": len(losses),
        "smallest_gap": gaps[0],
        "largest_gradient": largest,
        "seconds": round(time.perf_counter() - began, 1),
    }


def _descended(net: nn.Module, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """The loss and the norm of its gradient; NaN if a layer refuses its input."""
    try:
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
    except SpectralError:
        return math.nan, math.nan
    return float(loss.detach()), float(
        nn.utils.get_total_norm([p.grad for p in net.parameters() if p.grad is not None])
    )


def _relative_gap(M: Tensor) -> float:
    """The smallest (λ1 − λ2)/λ1 of the groups."""
    w = eigvalsh(M.detach())
    return float(((w[..., -1] - w[..., -2]) / w[..., -1]).min())


def _batches(count: int, seed: int) -> Iterator[Tensor]:
    """Random batches, the same for every method."""
    chance = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        yield torch.randint(count, (BATCH,), generator=chance)


@cache
def _crops(folder: str) -> tuple[Tensor, Tensor]:
    """The central 16×16 pixels of the training images, standardised, and the labels."""
    data = load("cifar10", folder)
    mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in (data.mean, data.std))
    images = torch.as_tensor(data.train.images)[..., 8:24, 8:24].float() / 255
    return (images - mean) / std, data.train.labels.long()


@draws("tpami/training-released-svd")
def draw_baselines(values: Mapping[str, Any]) -> Any:
    """The largest gradient of each run against the smallest gap that it met."""
    figure, axes = canvas(width=6.0)
    for method, color in zip(METHODS, ("black", "blue", "orange", "red"), strict=True):
        axes.plot(values[f"{method}_gaps"], values[f"{method}_gradients"], "o", color=COLORS[color], label=method)
    dress(axes, xlabel="smallest (λ₁ − λ₂)/λ₁ of the run", ylabel="largest gradient", xscale="log", yscale="log")
    return figure
