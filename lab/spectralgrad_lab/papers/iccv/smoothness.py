"""Effective β-smoothness of the meta-layers before training (Fig. 2 right, Fig. 4 right)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

import spectralgrad as sg
from spectralgrad.diagnostics import effective_smoothness

from ...data.embedded import read_embedded
from ...networks.registry import build
from ...training.config.run_config import Config
from ..drawing import COLORS, canvas, dress
from ..registry import computes, draws
from ..value_conditions import Value
from .initialization import embedded_images

SEEDS, BATCH, RATE = range(3), 32, 10**-1.1
METHODS: Mapping[str, str | sg.Method] = {
    "iSQRT-COV": sg.NewtonSchulz(steps=5),
    "SVD-Newton": sg.SVDNewton(steps=10),
    "SVD-TopN": sg.TopN(keep=40),
    "SVD-Taylor": sg.Taylor(degree=100),
    "SVD-Trunc": sg.Trunc(),
    "SVD-Padé": sg.Pade(faithful=True),
    "MPN-COV": "svd",
}
"""As in the paper, but TopN: 40 of 48 non-zero eigenvalues of 64, where the paper keeps 200 of 256."""


def smoothness(method: str | sg.Method, precision: str, seed: int) -> float:
    """β of an untrained small network with 64 channels over 7 × 7 positions before covariance pooling."""
    torch.manual_seed(seed)
    config = Config(
        network="small", width=32, layer="batchnorm", pooling="covariance", method=method, spectral_precision=precision
    )
    net, images, labels = build(config, 1, 28, 10), embedded_images(BATCH), read_embedded().train.labels[:BATCH]
    return effective_smoothness(lambda: functional.cross_entropy(net(images), labels), net, rate=RATE, points=4)


def mean(values: Sequence[float]) -> float:
    """The mean."""
    return sum(values) / len(values)


@computes("iccv/figure-2-right")
def two_methods() -> Mapping[str, Value]:
    """β of MPN-COV and iSQRT-COV in both precisions, three initial weights each."""
    names, precisions = ("iSQRT-COV", "MPN-COV"), ("float32", "float64")
    bars = [(name, p) for name in names for p in precisions]
    values = [[smoothness(METHODS[name], p, seed) for seed in SEEDS] for name, p in bars]
    return {
        "labels": [f"{name}, {p}" for name, p in bars],
        "beta": values,
        "ratio": [b / a for a, b in zip(values[1], values[3], strict=True)],
    }


@computes("iccv/figure-4-right")
def all_methods() -> Mapping[str, Value]:
    """β of every meta-layer in double precision, three initial weights each."""
    values = [[smoothness(method, "float64", seed) for seed in SEEDS] for method in METHODS.values()]

    def paired_ratio(row: Sequence[float], other: Sequence[float]) -> float:
        return mean([a / b for a, b in zip(row, other, strict=True)])

    return {
        "labels": list(METHODS),
        "beta": values,
        "over_newton_schulz": [paired_ratio(row, values[0]) for row in values],
        "over_svd": [paired_ratio(row, values[-1]) for row in values],
    }


@draws("iccv/figure-2-right", "iccv/figure-4-right")
def draw_smoothness(values: Mapping[str, Any]) -> Any:
    """One row per method, one dot per initial weights."""
    labels, rows = values["labels"], values["beta"]
    figure, axes = canvas(width=6.4, height=0.9 + 0.36 * len(labels))
    for place, betas in enumerate(rows):
        axes.plot([mean(betas)] * 2, [place - 0.25, place + 0.25], color=COLORS["blue"], linewidth=2)
        axes.plot(betas, [place] * len(betas), "o", color=COLORS["orange"], markersize=5)
    axes.plot([], [], color=COLORS["blue"], linewidth=2, label="mean")
    axes.plot([], [], "o", color=COLORS["orange"], markersize=5, label="one initialization")
    axes.set_yticks(range(len(labels)), labels=labels)
    axes.invert_yaxis()
    dress(axes, xlabel="effective β-smoothness (smaller is smoother)", legend="outside")
    axes.set_xlim(0, None)
    axes.set_title("Before training, small network", fontsize=9, loc="left")
    return figure
