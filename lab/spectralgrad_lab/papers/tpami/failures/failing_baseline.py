"""Table 4, row SVD, over 20,000 steps: the released baseline, of one eigenvector, and roots of all of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
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
from ...drawing import COLORS, canvas, dress
from ...registry import draws, trains
from ...small_protocol import prefixed
from ...training import Task, Training
from ...value_conditions import Value

SIZES, SEEDS, STEPS, BATCH, RATE, DECAY, EPS = (4, 8, 16), 5, 20_000, 64, 0.1, 5e-4, 1e-2
RELEASED = "released"
METHODS = {
    RELEASED: f"svd:stop={EPS}",
    "svd": "svd",
    "taylor": f"svd-taylor:faithful=True:clamp={EPS}",
    "exact": "exact",
}
LAST = 1_000  # the loss is the mean over so many steps at the end
DEPARTURES = [
    "a 3×3 convolution of 64 channels, whitening and a linear classifier instead of ResNet-18",
    "the central 16×16 pixels instead of random crops of 32×32, and no flips",
    f"batch_size {BATCH} instead of 128",
    "20,000 steps (26 epochs) instead of 137,000 (350 epochs)",
]


@trains("tpami/training-released-svd")
def released(train: Training) -> Mapping[str, Value]:
    """How long the released baseline survives, and what its last spectra and gradients were."""
    results = _results(train, [RELEASED])
    failed = [r for r in results if r["loss"] is None]
    published = printed("tpami")["table-4"]["svd"]["success"][: len(SIZES)]
    ties = {"failed": len(failed), "failed_with_ties": sum(r["ties"] > 0 for r in failed)}
    return {**_by_method(results), **ties, "released_success_published": published}


@trains("tpami/training-all-eigenvectors")
def all_eigenvectors(train: Training) -> Mapping[str, Value]:
    """The same for roots of all eigenvectors, with the gradient of the SVD, SVD-Taylor's and the exact one."""
    return _by_method(_results(train, [method for method in METHODS if method != RELEASED]))


def _results(train: Training, methods: Sequence[str]) -> list[Task]:
    """What was measured of every run, with its task; all runs of a seed come before those of the next."""
    planned = train.ready([{"method": m, "d": d, "seed": s} for s, m, d in product(range(SEEDS), methods, SIZES)])
    return [{**task, **found} for task, found in zip(planned, train.each(learn, planned), strict=True)]


def _by_method(results: Sequence[Task]) -> dict[str, Value]:
    methods = list(dict.fromkeys(r["method"] for r in results))
    values: dict[str, Value] = {"d": list(SIZES), "methods": methods, "departures": DEPARTURES}
    for method in methods:
        runs = [[r for r in results if (r["method"], r["d"]) == (method, d)] for d in SIZES]
        values |= prefixed(method, _described(runs))
    return {**values, "train_seconds": round(sum(result["seconds"] for result in results), 1)}


def _described(runs: list[list[Task]]) -> dict[str, Value]:
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


def learn(task: Task) -> Task:
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


@draws("tpami/training-released-svd", "tpami/training-all-eigenvectors")
def draw_baselines(values: Mapping[str, Any]) -> Any:
    """How long each run lasts, and its largest gradient."""
    figure, (left, right) = canvas(1, 2, width=4.4, height=3.4)
    for number, (method, color) in enumerate(zip(values["methods"], COLORS.values(), strict=False)):
        seeds = len(values[f"{method}_steps"]) // len(SIZES)
        places = [i + 0.15 * number for i in range(len(SIZES)) for _ in range(seeds)]
        look: dict[str, Any] = {"color": color, "label": method, "markersize": 4}
        left.plot(places, values[f"{method}_steps"], "o", **look)
        right.plot(places, values[f"{method}_gradients"], "o", **look)
    for axes, label, scale in ((left, "steps completed", "linear"), (right, "largest gradient of the run", "log")):
        axes.set_xticks(range(len(SIZES)), [str(d) for d in SIZES])
        dress(axes, xlabel="matrix dimension d", ylabel=label, yscale=scale)
    left.set_ylim(0, 1.05 * STEPS)
    return figure
