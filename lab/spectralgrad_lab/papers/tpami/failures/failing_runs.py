"""Short training runs with the plain gradient and with Taylor's, and which of them fail (Fig. 1(b))."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

import spectralgrad as sg
from spectralgrad.nn import DecorrelatedBatchNorm2d

from ....data.embedded import read_embedded
from ....published.printed import printed
from ...drawing import COLORS, blank, caption
from ...registry import computes, draws
from ...value_conditions import Value

SIZES, RUNS, STEPS, BATCH = (4, 8, 16, 32, 64), 5, 30, 64


@cache
def training_images() -> tuple[Tensor, Tensor]:
    """The embedded images, standardized, and their labels."""
    data = read_embedded().train
    images = torch.as_tensor(data.images, dtype=torch.float32)
    return (images - images.mean()) / images.std(), data.labels.long()


def network(d: int, method: str) -> nn.Sequential:
    """A 5×5 convolution with 25 inputs for each of 64 channels, whitening in groups of d, and a linear classifier."""
    return nn.Sequential(
        nn.Conv2d(1, 64, 5, stride=2, padding=2, bias=False),
        DecorrelatedBatchNorm2d(64, groups=64 // d, eps=1e-2, method=method),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(64 * 9, 10),
    )


def fails(d: int, method: str, seed: int) -> bool:
    """Whether a gradient is not finite within 30 steps of SGD (rate 0.1, momentum 0.9, batches of 64)."""
    torch.manual_seed(seed)
    images, labels = training_images()
    model = network(d, method)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for chosen in torch.randperm(len(images))[: STEPS * BATCH].split(BATCH):
        optimizer.zero_grad()
        try:
            nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
        except sg.NonFiniteError:
            return True
        if not all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None):
            return True
        optimizer.step()
    return False


@computes("tpami/figure-1b")
def failure_rates() -> Mapping[str, Value]:
    """The share of short runs that fail for d = 4 … 64, beside the paper's."""
    success = printed("tpami")["table-4"]["svd"]["success"]
    return {
        "d": list(SIZES),
        "runs": RUNS,
        "steps": STEPS,
        "svd": [fmean(fails(d, "svd", seed) for seed in range(RUNS)) for d in SIZES],
        "taylor": [fmean(fails(d, "svd-taylor", seed) for seed in range(2)) for d in SIZES],
        "published": [round(1 - rate / 100, 3) for rate in success],
    }


@draws("tpami/figure-1b")
def draw_failure_rates(values: Mapping[str, Any]) -> Any:
    """Bars for the plain gradient in the paper and here, and for SVD-Taylor here."""
    figure = blank(7.2, 4.0)
    axes = figure.subplots()
    bars = (("published", "SVD, paper (CIFAR-10, ResNet-18, 350 epochs)", "#BBBBBB"),
            ("svd", f"SVD, {values['runs']} short runs here (Fashion-MNIST, {values['steps']} steps)", COLORS["blue"]),
            ("taylor", "SVD-Taylor, 2 short runs here", COLORS["red"]))  # fmt: skip
    for number, (name, label, color) in enumerate(bars):
        places = [i + 0.27 * (number - 1) for i in range(len(values["d"]))]
        axes.bar(places, [100 * rate for rate in values[name]], 0.25, color=color, label=label)
        for place, rate in zip(places, values[name], strict=True):
            axes.annotate(f"{100 * rate:.0f}", (place, 100 * rate), xytext=(0, 2), textcoords="offset points",
                          ha="center", fontsize=8)  # fmt: skip
    caption(axes, "matrix dimension d", "runs that fail, per cent")
    axes.set_xticks(range(len(values["d"])), [str(d) for d in values["d"]])
    axes.set_ylim(0, 108)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", frameon=False, fontsize=9)
    return figure
