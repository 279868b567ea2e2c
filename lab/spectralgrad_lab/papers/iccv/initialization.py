"""Covariances of AlexNet's features before training: leading eigenvalues and condition numbers (Fig. 3, Table 1)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

import spectralgrad as sg

from ...data.embedded import read_embedded
from ...networks.registry import build
from ...training.config.presets import preset
from ..drawing import COLORS, canvas, dress, rounded
from ..inputs import EPS
from ..registry import computes, draws
from ..value_conditions import Value
from .small_eigenvalues import CHANNELS, POSITIONS, features

IMAGES, BATCH, RANDOM = 192, 64, 100


def embedded_images(count: int) -> Tensor:
    """The first embedded images (count, 1, 28, 28), from −0.5 to 0.5."""
    return cast(Tensor, read_embedded().train.images)[:count] / 255 - 0.5


@cache
def alexnet_features() -> Tensor:
    """The features before pooling (192, 256, 169) of embedded images at 224 × 224, in float64, with initial weights."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        net = build(preset("iccv-alexnet").replaced(reduce_to=8), 1, 224, 10)  # a small classifier, which is not used
        found: list[Tensor] = []
        net.get_submodule("bn5").register_forward_hook(lambda layer, given, out: found.append(torch.relu(out)))
        for images in embedded_images(IMAGES).split(BATCH):
            net(functional.interpolate(images, size=224, mode="bilinear"))
    return torch.cat(found).flatten(2).double()


def spectra(X: Tensor) -> Tensor:
    """Eigenvalues of the covariances, the largest first."""
    return torch.linalg.eigvalsh(sg.covariance(X)).flip(-1)


@computes("iccv/figure-3")
def ratios() -> Mapping[str, Value]:
    """λ1/λ2 of the covariances of images in an untrained AlexNet, and of random features of the same size."""
    images = spectra(alexnet_features())
    noise = spectra(torch.stack([features(seed) for seed in range(RANDOM)]))
    found = {"images": images[:, 0] / images[:, 1], "noise": noise[:, 0] / noise[:, 1]}
    return {
        **{name: rounded(values) for name, values in found.items()},
        **{f"lowest_{name}": float(values.min()) for name, values in found.items()},
        **{f"median_{name}": float(values.median()) for name, values in found.items()},
        "below_5_per_cent": float((found["noise"] < 1.05).double().mean()),
        "ties": int(sum((values == 1).sum() for values in found.values())),
    }


@draws("iccv/figure-3")
def draw_ratios(values: Mapping[str, Any]) -> Any:
    """The ratio for each sample, in rising order."""
    figure, axes = canvas(width=6.0, height=3.8)
    lines = (
        ("images", "AlexNet, initial weights, 192 images", "blue"),
        ("noise", "random features, 100 draws", "orange"),
    )
    for name, label, color in lines:
        count = len(values[name])
        axes.plot(
            [100 * (i + 0.5) / count for i in range(count)], sorted(values[name]), color=COLORS[color], label=label
        )
    axes.axhline(1, color=COLORS["black"], linewidth=0.9, linestyle="--")
    dress(axes, xlabel="per cent of the covariance matrices", ylabel="λ1/λ2", yscale="log", legend="upper left")
    axes.set_yticks([1, 1.5, 2, 3, 4], labels=["1", "1.5", "2", "3", "4"], minor=False)
    axes.yaxis.set_minor_locator(_no_ticks())
    axes.set_title("Fig. 3 before training: ratio of the first two eigenvalues", fontsize=9, loc="left")
    return figure


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


@computes("iccv/table-1-initialization")
def condition_numbers() -> Mapping[str, Value]:
    """Condition numbers of an untrained AlexNet as the layer sees them, clamped at ε, for features at two scales."""
    X = alexnet_features()
    w, small = spectra(X), spectra(X / 10)

    def clamped(w: Tensor) -> float:
        return float((w[:, 0] / w[:, -1].clamp_min(EPS)).mean())

    def within(w: Tensor) -> float:
        return float((w[:, 0] / w[:, POSITIONS - 2]).median())

    shares = (w / w[:, :1]).abs()
    middle, low, high = shares.median(0).values, shares.min(0).values, shares.max(0).values
    return {
        "rank": [int(r) for r in (w > CHANNELS * EPS * w[:, :1]).sum(-1).unique().tolist()],
        "clamped": clamped(w),
        "largest": float(w[:, 0].mean()),
        "within_the_range": within(w),
        "scaled": clamped(small) / clamped(w),
        "within_scaled": within(small) / within(w),
        "middle": rounded(middle),
        "low": rounded(low),
        "high": rounded(high),
    }


@draws("iccv/table-1-initialization")
def draw_condition_numbers(values: Mapping[str, Any]) -> Any:
    """Eigenvalues as a share of the largest: median and range over the images."""
    figure, axes = canvas(width=6.0, height=3.8)
    numbers = range(1, CHANNELS + 1)
    axes.fill_between(numbers, values["low"], values["high"], color=COLORS["sky"], alpha=0.4, label="range, 192 images")
    axes.plot(numbers, values["middle"], color=COLORS["blue"], label="median")
    axes.axhline(1e-14, color=COLORS["gray"], linewidth=0.9, linestyle="--", label="1e-14, the paper's threshold")
    axes.axvline(POSITIONS - 1, color=COLORS["gray"], linewidth=0.9)
    axes.annotate("rank 168", (POSITIONS - 1, 1e-7), xytext=(5, 0), textcoords="offset points", fontsize=8)
    dress(axes, yscale="log", xlabel="number of the eigenvalue", ylabel="|λ|/λ1", legend="center left", ylim=(1e-22, 5))
    axes.set_title("Table 1 before training: eigenvalues of AlexNet's covariances", fontsize=9, loc="left")
    return figure
