"""Figures 2–4 at a small size: three convolutions on images of 14×14 pixels, some tens of steps, one seed.

The papers train ResNet-18 on CIFAR-10 for 350 epochs. These runs show that the layers train and how their losses look
at the beginning; they cannot confirm or refute a difference of a tenth of a per cent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from torch import Tensor
from torch.nn.functional import avg_pool2d

from spectralgrad_lab.data.dataset import Split
from spectralgrad_lab.data.embedded import read_embedded
from spectralgrad_lab.published.printed import printed
from spectralgrad_lab.training.config import Config
from spectralgrad_lab.training.run import train

from ..conditions import Value
from ..drawing import COLORS, canvas, dress
from ..registry import computes, draws

SETTINGS: dict[str, Any] = {
    "train_size": 1000, "test_size": 1000, "batch_size": 50,
    "monitor_every": 0, "renew_batches": 5, "tensorboard": False, "patience": 0,
}  # fmt: skip
TABLE = printed("neurips")["table-4"]
PANELS = {
    "a": ("percentage", "variance kept in per cent"),
    "b": ("vectors", "eigenvectors kept"),
    "c": ("iterations", "power iterations"),
}


@cache
def _images() -> tuple[tuple[Tensor, Tensor], ...]:
    """Training and test images of the embedded data at half their size, with labels."""
    data = read_embedded()
    return _halved(data.train), _halved(data.test)


def _halved(split: Split) -> tuple[Tensor, Tensor]:
    assert isinstance(split.images, Tensor)
    return avg_pool2d(split.images.float(), 2).round().to(split.images.dtype), split.labels


def run(epochs: int, **settings: Any) -> tuple[list[float], float]:
    """The training loss of each epoch, NaN from a failure on, and the final test error in per cent."""
    result = train(Config(epochs=epochs, **SETTINGS, **settings), data=_images())
    losses = [round(epoch.train_loss, 4) for epoch in result.epochs]
    losses += [math.nan] * (epochs - len(losses))
    return losses, result.final_error if result.status == "done" else math.nan


def roughness(losses: Sequence[float]) -> float:
    """The sum of all rises of the loss from one epoch to the next; infinite if the run failed."""
    if any(math.isnan(loss) for loss in losses):
        return math.inf
    return sum(max(0.0, after - before) for before, after in pairwise(losses))


@computes("neurips/figure-2")
def whitening_losses() -> Mapping[str, Value]:
    """Training losses of ZCA whitening in groups of 8 and of 4, by power iteration and by the paper's method."""
    values: dict[str, Value] = {}
    for d in (8, 4):
        for name, method in (("PI", "pi"), ("ours", "svd-pi")):
            losses, error = run(4, layer="whitening", group_size=d, method=method, eps=1e-4)
            key = f"{name}_{d}".lower()
            values |= {key: losses, f"{key}_error": error, f"{key}_rises": roughness(losses)}
    return values


@computes("neurips/figure-3")
def denoising_errors() -> Mapping[str, Value]:
    """Test errors of PCA denoising over the settings of Table 4, beside the errors printed there."""
    values: dict[str, Value] = {}
    for panel, (kind, _) in PANELS.items():
        settings = [float(x) for x in TABLE[panel][kind]]
        values[f"{panel}_{kind}"] = settings
        values[f"{panel}_published"] = [float(mean) for mean, _ in TABLE[panel]["error"]]
        values[f"{panel}_ours"] = [run(2, layer="denoising", **_denoising(kind, x))[1] for x in settings]
    ours = [float(x) for x in values["a_ours"]]  # type: ignore[union-attr, arg-type]
    return {**values, "a_spread": max(ours) - min(ours), "all_finite": all(map(math.isfinite, _all_errors(values)))}


def _all_errors(values: Mapping[str, Any]) -> list[float]:
    return [float(x) for panel in PANELS for x in values[f"{panel}_ours"]]


def _denoising(kind: str, setting: float) -> dict[str, Any]:
    if kind == "percentage":
        return {"method": "svd-pi", "keep": setting / 100}
    if kind == "vectors":
        return {"method": "svd-pi", "keep": int(setting)}
    return {"method": f"svd-pi:iterations={int(setting)}", "keep": 0.999}


@computes("neurips/figure-4")
def denoising_losses() -> Mapping[str, Value]:
    """Training losses of batch normalization and of PCA denoising by the paper's method and by power iteration."""
    values: dict[str, Value] = {}
    cases: dict[str, dict[str, Any]] = {
        "bn": {"layer": "batchnorm"},
        "ours": {"layer": "denoising", "method": "svd-pi", "keep": 0.99},
        "pi": {"layer": "denoising", "method": "pi", "keep": 0.99},
    }
    for name, settings in cases.items():
        losses, error = run(3, **settings)
        values |= {name: losses, f"{name}_error": error, f"{name}_rises": roughness(losses)}
    return values


def _losses(axes: Any, lines: Mapping[str, tuple[Sequence[float], str]], title: str) -> None:
    for label, (losses, color) in lines.items():
        axes.plot(range(1, len(losses) + 1), losses, "o-", color=COLORS[color], label=label)
    axes.set_xticks(range(1, 1 + max(len(losses) for losses, _ in lines.values())))
    dress(axes, xlabel="epoch", ylabel="training loss")
    axes.set_title(title, fontsize=10, loc="left")


@draws("neurips/figure-2")
def draw_whitening(values: Mapping[str, Any]) -> Any:
    """Two panels: groups of 8 and of 4."""
    figure, panels = canvas(1, 2, width=4.4, height=3.6, sharey=True)
    for axes, d in zip(panels, (8, 4), strict=True):
        lines = {
            "power iteration": (values[f"pi_{d}"], "blue"),
            "SVD-PI (the paper's)": (values[f"ours_{d}"], "orange"),
        }
        _losses(axes, lines, f"ZCA whitening, d = {d}, small network")
    return figure


@draws("neurips/figure-3")
def draw_denoising_errors(values: Mapping[str, Any]) -> Any:
    """Three panels: published errors on the left axis, ours at the small size on the right."""
    figure, panels = canvas(1, 3, width=4.2, height=3.6)
    for axes, (panel, (kind, label)) in zip(panels, PANELS.items(), strict=True):
        places = range(len(values[f"{panel}_{kind}"]))
        axes.plot(places, values[f"{panel}_published"], "o--", color=COLORS["gray"], label="published, left axis")
        other = axes.twinx()
        other.plot(places, values[f"{panel}_ours"], "s-", color=COLORS["orange"], label="small network, right axis")
        axes.set_xticks(places, [f"{x:g}" for x in values[f"{panel}_{kind}"]])
        dress(axes, legend=False, xlabel=label, ylabel="CIFAR-10, ResNet-18: error in per cent", ylim=(4.2, 6.2))
        other.set_ylabel("14×14 images, 40 steps: error in per cent")
        other.spines["top"].set_visible(False)
        axes.set_title(f"({panel})", fontsize=10, loc="left")
    handles = [artist.get_legend_handles_labels() for artist in (panels[0], other)]
    figure.legend(
        handles[0][0] + handles[1][0], handles[0][1] + handles[1][1], loc="outside lower center", ncols=2, frameon=False
    )
    return figure


@draws("neurips/figure-4")
def draw_denoising_losses(values: Mapping[str, Any]) -> Any:
    """One panel with three lines."""
    figure, axes = canvas(1, 1, width=5.2, height=3.6)
    lines = {
        "batch normalization": (values["bn"], "black"),
        "PCA denoising, power iteration": (values["pi"], "blue"),
        "PCA denoising, SVD-PI (the paper's)": (values["ours"], "orange"),
    }
    _losses(axes, lines, "PCA denoising (99 %), small network")
    return figure
