"""Table 4, row SVD: the released baseline, of one eigenvector, against roots of all of them, over 20,000 steps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor, nn

from spectralgrad import eigh, eigvalsh
from spectralgrad.errors import SpectralError
from spectralgrad.nn import DecorrelatedBatchNorm2d

from ....data import load
from ....published.printed import printed
from ...conditions import Value
from ...drawing import COLORS, canvas, dress
from ...registry import draws, trains
from ...small_protocol import prefixed
from ...training import Training

SIZES, SEEDS, STEPS, BATCH, RATE, DECAY, EPS = (4, 8, 16), 5, 20_000, 64, 0.1, 5e-4, 1e-2
METHODS = {
    "released": f"svd:stop={EPS}",
    "svd": "svd",
    "taylor": f"svd-taylor:faithful=True:clamp={EPS}",
    "exact": "exact",
}
LAST = 1_000  # the loss is the mean over so many steps at the end


def tasks() -> list[dict[str, Any]]:
    """One task per seed, method and dimension."""
    return [{"method": m, "d": d, "seed": s} for s, m, d in product(range(SEEDS), METHODS, SIZES)]


DEPARTURES = [
    "a 3×3 convolution of 64 channels, whitening and a linear classifier instead of ResNet-18",
    "the central 16×16 pixels instead of random crops of 32×32, and no flips",
    f"batch_size {BATCH} instead of 128",
    "20,000 steps (26 epochs) instead of 137,000 (350 epochs)",
]


@trains("tpami/training-released-svd")
def baselines(train: Training) -> Mapping[str, Value]:
    """For each method and d: which runs complete, what their gradients and spectra were, the loss."""
    planned = train.ready(tasks())
    results = list(zip(planned, train.each(learn, planned), strict=True))
    values: dict[str, Value] = {"d": list(SIZES), "departures": DEPARTURES}
    for method in METHODS:
        runs = [[r for t, r in results if (t["method"], t["d"]) == (method, d)] for d in SIZES]
        values |= prefixed(method, _described(runs))
    failed = [r for t, r in results if t["method"] == "released" and r["loss"] is None]
    return {
        **values,
        "released_success_published": printed("tpami")["table-4"]["svd"]["success"][: len(SIZES)],
        "failed": len(failed),
        "failed_with_ties": sum(r["ties"] > 0 for r in failed),
        "train_seconds": round(sum(result["seconds"] for _, result in results), 1),
    }


def _described(runs: list[list[dict[str, Any]]]) -> dict[str, Value]:
    """What the runs of a method say, one entry for each d; then each run by itself, for the picture."""
    return {
        "success": [round(100 * fmean(r["loss"] is not None for r in found), 1) for found in runs],
        "median_steps": [median(r["steps"] for r in found) for found in runs],
        "loss": [_mean([r["loss"] for r in found if r["loss"] is not None]) for found in runs],
        "at_eps": [round(fmean(r["at_eps"] for r in found), 1) for found in runs],
        "smallest_gap": [min(r["smallest_gap"] for r in found) for found in runs],
        "largest_gradient": [max(r["largest_gradient"] for r in found) for found in runs],
        "steps": [r["steps"] for found in runs for r in found],
        "gaps": [r["smallest_gap"] for found in runs for r in found],
        "gradients": [r["largest_gradient"] for found in runs for r in found],
    }


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
    began, (images, labels) = time.process_time(), _crops(task["data"])
    torch.manual_seed(task["seed"])
    net, gaps, last = network(task["d"], METHODS[task["method"]]), list[float](), dict[str, Tensor]()

    def look(_: nn.Module, M: Tensor) -> None:
        gaps.append(_relative_gap(M))
        last["M"] = M

    net[1].register_spectral_hook(look)  # type: ignore[operator]
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9, weight_decay=DECAY)
    losses, sizes = [], list[float]()
    for chosen in _batches(len(images), task["seed"]):
        optimizer.zero_grad()
        loss, size = _descended(net, images[chosen], labels[chosen])
        if not math.isfinite(loss + size):
            break
        optimizer.step()
        losses.append(loss)
        sizes.append(size)
    return {
        "loss": _mean(losses[-LAST:]) if len(losses) == STEPS else None,
        "steps": len(losses),
        "smallest_gap": min(gaps[: len(sizes)]),  # without the step that failed
        "largest_gradient": max(sizes),
        "gap_at_largest": gaps[sizes.index(max(sizes))],
        "median_gradient": median(sizes),
        **_bottom(last["M"]),
        "seconds": round(time.process_time() - began, 1),
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


def _bottom(M: Tensor) -> dict[str, Any]:
    """How many of the 64 eigenvalues equal ε up to 1e-4, and how many equal their neighbor to the last bit."""
    w, _ = eigh(M)
    return {"at_eps": int((w < EPS * (1 + 1e-4)).sum()), "ties": int((w[..., 1:] == w[..., :-1]).sum())}


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
    """How long each run lasts; and its largest gradient against the smallest gap that it met."""
    figure, (left, right) = canvas(1, 2, width=4.4, height=3.4)
    seeds = len(values["exact_steps"]) // len(SIZES)
    for number, (method, color) in enumerate(zip(METHODS, ("black", "blue", "orange", "red"), strict=True)):
        look: dict[str, Any] = {"color": COLORS[color], "label": method, "markersize": 4}
        places = [i + 0.15 * (number - 1.5) for i in range(len(SIZES)) for _ in range(seeds)]
        left.plot(places, values[f"{method}_steps"], "o", **look)
        right.plot(values[f"{method}_gaps"], values[f"{method}_gradients"], "o", **look)
    left.set_xticks(range(len(SIZES)), [str(d) for d in SIZES])
    dress(left, xlabel="matrix dimension d", ylabel="steps until the gradient is not finite", ylim=(0, 1.05 * STEPS))
    dress(right, xlabel="smallest (λ₁ − λ₂)/λ₁ of the run", ylabel="largest gradient", xscale="log", yscale="log")
    return figure
