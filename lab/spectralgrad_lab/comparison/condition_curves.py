"""Condition numbers of covariances over training under each treatment of ECCV 2022 (its Figs 1–5), on small networks.

As in the paper, κ is the condition number of the covariance without ε. It is computed in float64 from the features as
the network has them, in float32.
"""

from __future__ import annotations

import statistics
import warnings
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

import spectralgrad as sg
from spectralgrad.optim import ConditioningWarning, NearestOrthogonalGradient, OptimalLearningRate

from ..data import Split
from ..networks.conditioning import pooling_network, whitening_network
from ..training.loop.treatments import distance_from_orthogonal
from .condition_panels import COLORS

TREATMENTS = tuple(COLORS)
"""The lines of Figs 1–5 by the names in the paper's tables, and OLR with the minimiser of Eq. 18."""
TASKS = {
    "deficient": "3×3 first filters: rank at most 9 of 16",
    "wide": "5×5 first filters: full rank",
    "pooling": "covariance pooling, 4×4 positions: rank at most 15 of 32",
}
CHANNELS, EPS, BATCH, RATE = 16, 1e-6, 64, 0.1
POOLED_CHANNELS = 32
LARGEST = 1e20
"""Condition numbers are cut here, so that covariances with exact zeros can be drawn."""

Data = dict[str, tuple[Tensor, Tensor]]


@dataclass
class Curve:
    """What one training run showed.

    Attributes:
        steps: the recorded steps.
        condition: κ of the covariance; for pooling the median over images.
        with_eps: the same with ε added, as the layer decomposes it.
        rank: number of eigenvalues above 1e-10 of the largest.
        accuracy: share of correct predictions on the test images.
    """

    steps: list[int] = field(default_factory=list)
    condition: list[float] = field(default_factory=list)
    with_eps: list[float] = field(default_factory=list)
    rank: list[float] = field(default_factory=list)
    accuracy: float = 0.0

    def late(self, name: str) -> float:
        """The median of a series over the second half of training."""
        values = getattr(self, name)
        return float(statistics.median(values[len(values) // 2 :]))


def half_size(split: Split) -> tuple[Tensor, Tensor]:
    """Standardized images at half size (N, 1, 14, 14), and labels."""
    assert isinstance(split.images, Tensor)
    return nn.functional.avg_pool2d((split.images / 255 - 0.286) / 0.353, 2), split.labels


def record(layer: nn.Module, curve: Curve, every: int, eps: float) -> RemovableHandle:
    """Add the condition numbers of the covariance that a layer receives to a curve, every n training passes."""
    passes = 0

    def look(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        nonlocal passes
        if layer.training and passes % every == 0:
            curve.steps.append(passes)
            for name, value in _conditions(covariances(layer, inputs[0].detach()), eps).items():
                getattr(curve, name).append(value)
        passes += layer.training

    return layer.register_forward_pre_hook(look)


def covariances(layer: nn.Module, features: Tensor) -> Tensor:
    """Covariances in float64: one over the batch (1, C, C), or before pooling one for each of 16 images (16, C, C)."""
    if isinstance(layer, sg.nn.CovariancePooling):
        return sg.covariance(features[:16].flatten(2).double())
    return sg.covariance(features.transpose(0, 1).flatten(1).double())[None]


def _conditions(C: Tensor, eps: float) -> dict[str, float]:
    sizes = torch.linalg.eigvalsh(C).abs()  # rounding may make zeros negative; Eq. 1 has singular values
    largest, smallest = sizes.amax(1), sizes.amin(1)
    found = {
        "condition": (largest / smallest).clamp(max=LARGEST),
        "with_eps": ((largest + eps) / (smallest + eps)).clamp(max=LARGEST),
        "rank": (sizes > 1e-10 * largest[:, None]).sum(1).double(),
    }
    return {name: float(values.median()) for name, values in found.items()}


def network(treatment: str, task: str) -> tuple[nn.Sequential, nn.Module, nn.Module]:
    """The network of a task, the layer before its spectral layer, and the spectral layer."""
    parts = treatment.split("+")
    if task == "pooling":
        net = pooling_network(POOLED_CHANNELS, EPS, parts)
        return net, net[6], net[8]
    net = whitening_network(CHANNELS, {"deficient": 3, "wide": 5}[task], EPS, parts)
    return net, net[0], net[1]


def train(treatment: str, task: str, data: Data, steps: int, seed: int) -> Curve:
    """Train a network once with a treatment.

    Args:
        treatment: of ``TREATMENTS``.
        task: of ``TASKS``.
        data: images and labels for ``"train"`` and ``"test"``.
        steps: of SGD with batches of 64 at rate 0.1, with two decays.
        seed: of weights and batches.

    Example:
        >>> images, labels = torch.randn(64, 1, 14, 14), torch.arange(64) % 10
        >>> data = {"train": (images, labels), "test": (images, labels)}
        >>> curve = train("NOG+OLR", "wide", data, steps=2, seed=0)
        >>> curve.steps, curve.condition[0] > 1, curve.rank
        ([0, 1], True, [16.0, 16.0])
    """
    torch.manual_seed(seed)
    net, layer, spectral = network(treatment, task)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [max(1, steps // 2), max(2, 3 * steps // 4)])
    attach(treatment, optimizer, layer)
    curve = Curve()
    handle = record(spectral, curve, max(1, steps // 60), EPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConditioningWarning)  # of pairs that the paper tries and advises against
        for _ in range(steps):
            chosen = torch.randint(len(data["train"][0]), (BATCH,))
            inputs, labels = (part[chosen] for part in data["train"])
            loss = nn.functional.cross_entropy(net(inputs), labels)
            if "OL" in treatment.split("+"):
                loss = loss + distance_from_orthogonal([layer])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
    handle.remove()
    curve.accuracy = accuracy(net, *data["test"])
    return curve


def attach(treatment: str, optimizer: torch.optim.Optimizer, layer: nn.Module) -> None:
    """Attach NOG and OLR to the optimizer if the treatment has them."""
    parts = treatment.split("+")
    if "NOG" in parts:
        NearestOrthogonalGradient(optimizer, layer)
    if parts[-1].startswith("OLR"):
        OptimalLearningRate(optimizer, layer, objective="exact" if "exact" in treatment else "paper")


@torch.no_grad()
def accuracy(net: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Share of correct predictions; whitening uses the statistics of batches of 500."""
    net.eval()
    right = [(net(x).argmax(1) == y).sum() for x, y in zip(inputs.split(500), labels.split(500), strict=True)]
    return float(cast(Tensor, sum(right))) / len(labels)
