"""Figure 3 at a small size: three convolutions on images of 14×14 pixels, some tens of steps, one seed.

The paper trains ResNet-18 on CIFAR-10 for 350 epochs. These runs show that the layer trains; they cannot confirm or
refute a difference of a tenth of a per cent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from statistics import stdev
from typing import Any

from torch import Tensor
from torch.nn.functional import avg_pool2d

from spectralgrad_lab.data.dataset import Split
from spectralgrad_lab.data.embedded import read_embedded
from spectralgrad_lab.published.printed import printed
from spectralgrad_lab.training.config.run_config import Config
from spectralgrad_lab.training.loop.run import train

from ..drawing import COLORS, canvas, dress
from ..registry import computes, draws
from ..value_conditions import Value

SETTINGS: dict[str, Any] = {"batch_size": 50, "monitor_every": 0, "tensorboard": False, "patience": 0}
FOR_ERRORS: dict[str, Any] = {"train_size": 1000, "test_size": 1000, "renew_batches": 5, "epochs": 2}
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


def error_of(**settings: Any) -> float:
    """The test error in per cent after two epochs of twenty steps, NaN if the run failed."""
    result = train(Config(**SETTINGS, **FOR_ERRORS, layer="denoising", **settings), data=_images())
    return result.final_error if result.status == "done" else math.nan


@computes("neurips/figure-3")
def denoising_errors() -> Mapping[str, Value]:
    """Test errors of PCA denoising over the settings of Table 4, those printed there, and the spread over seeds."""
    values: dict[str, Value] = {}
    ours: list[float] = []
    for panel, (kind, _) in PANELS.items():
        settings = [float(x) for x in TABLE[panel][kind]]
        errors = [error_of(**_denoising(kind, x)) for x in settings]
        values |= {f"{panel}_settings": settings, f"{panel}_ours": errors}
        values[f"{panel}_published"] = [[float(x) for x in cell] for cell in TABLE[panel]["error"]]
        ours += errors
    by_share = dict(zip(map(float, TABLE["a"]["percentage"]), ours, strict=False))  # the first panel's
    seeds = [error_of(seed=seed, **_denoising("percentage", 99)) for seed in range(1, 5)]
    return {
        **values,
        "completed": sum(map(math.isfinite, ours)),
        "lowest": min(ours),
        "highest": max(ours),
        "over_seeds": stdev(seeds),
        "difference": by_share[85.0] - by_share[99.0],
        "standard_error": math.sqrt(2) * stdev(seeds),
    }


def _denoising(kind: str, setting: float) -> dict[str, Any]:
    if kind == "percentage":
        return {"method": "svd-pi", "keep": setting / 100}
    if kind == "vectors":
        return {"method": "svd-pi", "keep": int(setting)}
    return {"method": f"svd-pi:iterations={int(setting)}", "keep": 0.999}


@draws("neurips/figure-3")
def draw_denoising_errors(values: Mapping[str, Any]) -> Any:
    """Published errors above, with their deviations; the small network's below, on an axis of their own."""
    figure, panels = canvas(2, 3, width=3.6, height=2.7, sharey="row", sharex="col")
    for column, (panel, (_, label)) in zip(panels.T, PANELS.items(), strict=True):
        places = range(len(values[f"{panel}_settings"]))
        means, deviations = zip(*values[f"{panel}_published"], strict=True)
        column[0].errorbar(places, means, deviations, fmt="o--", color=COLORS["black"], capsize=3)
        column[1].errorbar(
            places, values[f"{panel}_ours"], values["over_seeds"], fmt="s-", color=COLORS["orange"], capsize=3
        )
        column[1].set_xticks(places, [f"{x:g}" for x in values[f"{panel}_settings"]])
        dress(column[0], legend=False)
        dress(column[1], legend=False, xlabel=label, ylim=(0, 40))
        column[0].set_title(f"({panel})", fontsize=10, loc="left")
    panels[0, 0].set_ylabel("published, CIFAR-10\nerror in per cent")
    panels[1, 0].set_ylabel("small network, 40 steps\nerror in per cent")
    return figure
