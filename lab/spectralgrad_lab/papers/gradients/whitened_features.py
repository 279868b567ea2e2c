"""Self-supervised features with a whitening loss, in a network whose second whitening starts at tied eigenvalues.

Two augmented views of an image go through a small encoder, a whitening and an orthogonal linear map. What comes out has
the covariance QQᵀ, whose eigenvalues are all 1 or 0 up to ε and rounding. A second whitening and the distance of the
views are the loss of W-MSE (Ermolov, Siarohin, Sangineto and Sebe, ICML 2021). With as many outputs as inputs all
eigenvalues are tied at 1 at the start; with more outputs the others are tied at 0 for ever. Only the gradient of the
second whitening differs between the runs. At the end a linear classifier is fitted to the encoder's features.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor, nn

from spectralgrad.errors import SpectralError
from spectralgrad.nn import DecorrelatedBatchNorm1d

from ...data import Dataset, Split, load
from ...data.augmentation import DRAWS, Augmentation, augmented
from ...networks import in_form
from ...report.ties import ties
from ..registry import draws, trains
from ..training import Training
from ..training_pictures import Panel, rows_with_bars
from ..value_conditions import Value

SEEDS, IMAGES, EPOCHS, BATCH, RATE = 3, 5_000, 6, 128, 2e-3
FEATURES, WHITENED, EPS = 64, 32, 1e-3
OUTPUTS = (32, 48)
METHODS = {
    "untrained": ("exact", "sound"),
    "exact": ("exact", "sound"),
    "svd": ("svd", "sound"),
    "svd, clamped": (f"svd:clamp={EPS}", "sound"),
    "svd-taylor": ("svd-taylor", "sound"),
    "svd-taylor, published": ("svd-taylor", "published"),
    "svd-pade": ("svd-pade", "sound"),
    "newton-schulz": ("newton-schulz", "sound"),
}
VIEWS = Augmentation(padding=6, centered=False, flip=True)


def tasks() -> list[dict[str, Any]]:
    """One task per seed, number of outputs and method."""
    return [{"method": m, "outputs": d, "seed": s} for s, d, m in product(range(SEEDS), OUTPUTS, METHODS)]


@trains("gradients/training-whitened-features")
def whitened_features(train: Training) -> Mapping[str, Value]:
    """Errors of the linear classifier, ties, and differences from exact paired by seed, for each number of outputs."""
    planned = tasks()
    results = list(zip(planned, train.each(learn, planned), strict=True))
    values: dict[str, Value] = {"methods": list(METHODS)}
    for outputs in OUTPUTS:
        runs = {m: [r for t, r in results if (t["method"], t["outputs"]) == (m, outputs)] for m in METHODS}
        values |= {f"{name}_{outputs}": value for name, value in _evaluated(runs).items()}
    done = {name: [r["error"] is not None for t, r in results if t["method"] == name] for name in METHODS}
    values |= {"exact_completes": all(done["exact"]), "svd_completes": any(done["svd"] + done["svd, clamped"])}
    return {**values, "train_seconds": round(sum(result["seconds"] for _, result in results), 1)}


@draws("gradients/training-whitened-features")
def draw_differences(values: Mapping[str, Any]) -> Any:
    """Differences from exact for each number of outputs; methods without a point did not complete."""
    panels = [
        Panel(f"{d} outputs", values["methods"], values[f"difference_{d}"], values[f"standard_error_{d}"])
        for d in OUTPUTS
    ]
    return rows_with_bars(panels, "error of the linear classifier minus that of exact", zero=True)


def _evaluated(runs: Mapping[str, list[dict[str, Any]]]) -> dict[str, Value]:
    errors = {m: [r["error"] for r in found if r["error"] is not None] for m, found in runs.items()}
    differences = {m: _differences(found, runs["exact"]) for m, found in runs.items()}
    trained = [r for m, found in runs.items() if m != "untrained" for r in found]
    return {
        "completed": [len(errors[m]) for m in runs],
        "mean": [_mean(errors[m]) for m in runs],
        "difference": [_mean(differences[m]) for m in runs],
        "standard_error": [_error(differences[m]) for m in runs],
        "loss": [_mean([r["loss"] for r in found if r["loss"] is not None]) for found in runs.values()],
        "tied_at_start": _mean([r["tied_at_start"] for r in trained]),
        "tied_at_end": [_mean([r["tied_at_end"] for r in found]) for found in runs.values()],
        "failed_after": [_mean([r["steps"] for r in found if r["error"] is None]) for found in runs.values()],
    }


def _differences(ours: list[dict[str, Any]], exact: list[dict[str, Any]]) -> list[float]:
    pairs = [(a["error"], b["error"]) for a, b in zip(ours, exact, strict=True)]
    return [a - b for a, b in pairs if a is not None and b is not None]


def _mean(values: list[float]) -> float:
    return round(fmean(values), 3) if values else float("nan")


def _error(values: list[float]) -> float:
    return round(stdev(values) / len(values) ** 0.5, 3) if len(values) > 1 else float("nan")


class Embedding(nn.Module):
    """Encoder, whitening, orthogonal map, and the whitening whose gradient is compared.

    Args:
        outputs: of the orthogonal map.
        method: of the second whitening.
        form: of the method, ``"sound"`` or ``"published"``.
    """

    def __init__(self, outputs: int, method: str, form: str) -> None:
        super().__init__()
        self.encoder = nn.Sequential(*_block(3, 32), *_block(32, 64), *_block(64, FEATURES), nn.AvgPool2d(4))
        self.project = nn.Linear(FEATURES, WHITENED)
        self.whiten = DecorrelatedBatchNorm1d(
            WHITENED, 1e-10, affine=False, method="exact", compute_dtype=torch.float64
        )
        self.turn = nn.Linear(WHITENED, outputs, bias=False)
        nn.init.orthogonal_(self.turn.weight)
        last = DecorrelatedBatchNorm1d(outputs, EPS, affine=False)
        self.last = DecorrelatedBatchNorm1d(outputs, EPS, affine=False, method=in_form(form, method, last))
        self.spectrum: list[float] = []
        self.last.register_spectral_hook(lambda _, matrices: self._look(matrices))

    def _look(self, matrices: Tensor) -> None:
        self.spectrum = torch.linalg.eigvalsh(matrices.detach().flatten(0, -3)[0]).tolist()

    def features(self, images: Tensor) -> Tensor:
        """What the linear classifier sees, (B, 64)."""
        return self.encoder(images).flatten(1)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """The loss of W-MSE: twice one minus the mean cosine of the whitened views."""
        both = self.project(self.features(torch.cat([first, second])))
        one, other = self.last(self.turn(self.whiten(both))).chunk(2)
        return 2 - 2 * nn.functional.cosine_similarity(one, other).mean()


def _block(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(inputs, outputs, 3, 2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()


def learn(task: dict[str, Any]) -> dict[str, Any]:
    """Train one embedding, and fit the linear classifier; ``error`` is None if the gradient became non-finite."""
    torch.set_num_threads(1)
    began, data = time.perf_counter(), _images(task["data"])
    torch.manual_seed(task["seed"])
    net = Embedding(task["outputs"], *METHODS[task["method"]])
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    found: dict[str, Any] = {"error": None, "loss": None, "steps": 0, "tied_at_start": 0}
    finite = True
    for first, second in _pairs(data, task["seed"], 0 if task["method"] == "untrained" else EPOCHS):
        optimizer.zero_grad()
        finite = _descended(net, first, second, found)
        if found["steps"] == 0:
            found["tied_at_start"] = _tied(net.spectrum)
        if not finite:
            break
        optimizer.step()
        found["steps"] += 1
    found |= {"tied_at_end": _tied(net.spectrum), "seconds": round(time.perf_counter() - began, 1)}
    return {**found, "error": _probe(net.eval(), data) if finite else None}


def _descended(net: Embedding, first: Tensor, second: Tensor, found: dict[str, Any]) -> bool:
    """Compute loss and gradients; False if they are not finite."""
    try:
        loss = net(first, second)
        loss.backward()
    except SpectralError:
        return False
    finite = all(bool(p.grad.isfinite().all()) for p in net.parameters() if p.grad is not None)
    if finite:
        found["loss"] = round(float(loss.detach()), 5)
    return finite


def _tied(spectrum: list[float]) -> int:
    """How many eigenvalues have a neighbor that float32 can hardly separate from them."""
    return sum(map(len, ties(spectrum)))


@cache
def _images(folder: str) -> Dataset:
    return load("cifar10", folder, train_size=IMAGES, test_size=IMAGES)


def _pairs(data: Dataset, seed: int, epochs: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Two views of the images of each batch: cropped, mirrored, and of another brightness and contrast."""
    chance = torch.Generator().manual_seed(seed)
    images = _tensor(data.train)
    for _ in range(epochs):
        for chosen in torch.randperm(len(images), generator=chance).split(BATCH)[: len(images) // BATCH]:
            yield _view(data, images[chosen], chance), _view(data, images[chosen], chance)


def _view(data: Dataset, images: Tensor, chance: torch.Generator) -> Tensor:
    moved = augmented(images, torch.rand(len(images), DRAWS, generator=chance), VIEWS)
    contrast, brightness = (torch.rand(2, len(images), 1, 1, 1, generator=chance) - 0.5) * 0.8
    return _normalized(data, moved) * (1 + contrast) + brightness


def _normalized(data: Dataset, images: Tensor) -> Tensor:
    mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in (data.mean, data.std))
    return (images.float() / 255 - mean) / std


def _tensor(split: Split) -> Tensor:
    assert isinstance(split.images, Tensor)
    return split.images


@torch.no_grad()
def _probe(net: Embedding, data: Dataset) -> float:
    """The test error in per cent of ridge regression on the features, with one output per class."""
    (X, labels), (tested, wanted) = ((_features(net, data, s), s.labels) for s in (data.train, data.test))
    mean, std = X.mean(0), X.std(0) + 1e-6
    X, tested = ((F - mean) / std for F in (X, tested))
    targets = nn.functional.one_hot(labels).double()
    gram = X.mT @ X + 1e-3 * len(X) * torch.eye(X.shape[1], dtype=X.dtype)
    weight = torch.linalg.solve(gram, X.mT @ (targets - targets.mean(0)))
    guessed = (tested @ weight + targets.mean(0)).argmax(1)
    return round(100 * float((guessed != wanted).double().mean()), 3)


def _features(net: Embedding, data: Dataset, split: Split) -> Tensor:
    parts = [net.features(_normalized(data, part)) for part in _tensor(split).split(500)]
    return torch.cat(parts).double()
