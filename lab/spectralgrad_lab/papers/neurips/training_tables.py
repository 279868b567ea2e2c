"""Table 4 at small size: PCA denoising over the share of the variance kept and over the number of vectors kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...published.printed import printed
from ...training.config.run_config import Config
from ..registry import draws, trains
from ..small_protocol import EASIER, columns, failures, largest, prefixed, seconds, seeded, small, versus
from ..training import Settings, Training
from ..training_pictures import Panel, rows_with_bars
from ..value_conditions import Value

TABLE, BATCHNORM = printed("neurips")["table-4"], printed("neurips")["table-5"]["BN"]
SHARES = [float(share) for share in TABLE["a"]["percentage"]]
VECTORS = [int(count) for count in TABLE["b"]["vectors"]]
REFERENCE = "99 %"


def settings() -> Settings:
    """Denoising by SVD-PI, which averages covariances, and batch normalization."""
    denoising = {
        **{f"{share:g} %": _denoising(share / 100) for share in SHARES},
        **{f"{count} vectors": _denoising(count) for count in VECTORS},
        "batchnorm": small("neurips-cifar10", layer="batchnorm", method="exact", **EASIER),
    }
    return {name: seeded(config) for name, config in denoising.items()}


def _denoising(keep: float) -> Config:
    return small("neurips-cifar10-pca", keep=keep, statistics="covariance", **EASIER)


@trains("neurips/training-table-4")
def denoising(train: Training) -> Mapping[str, Value]:
    """Errors beside those printed, and differences from 99 %, paired by seed."""
    found = train.run(settings())
    shares, vectors = [f"{share:g} %" for share in SHARES], [f"{count} vectors" for count in VECTORS]
    values: dict[str, Value] = {"shares": SHARES, "vectors": VECTORS, "train_seconds": seconds(found)}
    for kind, panel, names in (("share", "a", shares), ("vectors", "b", vectors)):
        values |= prefixed(kind, {**columns(found, names), **versus(found, names, REFERENCE)})
        means = [float(mean) for mean, _ in TABLE[panel]["error"]]
        values[f"{kind}_mean_published"] = means
        values[f"{kind}_difference_published"] = [round(mean - min(means), 3) for mean in means]  # 99 %, 16 vectors
    best = min(float(mean) for mean, _ in TABLE["a"]["error"])
    plain = {**columns(found, ["batchnorm"]), **versus(found, ["batchnorm"], REFERENCE)}
    return {
        **values,
        **prefixed("batchnorm", {name: value[0] for name, value in plain.items()}),
        "batchnorm_mean_published": float(BATCHNORM["mean"][0]),
        "batchnorm_difference_published": round(float(BATCHNORM["mean"][0]) - best, 3),
        "clear": largest(found, list(found), REFERENCE),
        "failures": failures(found),
    }


@draws("neurips/training-table-4")
def draw_denoising(values: Mapping[str, Any]) -> Any:
    """Differences from 99 %, over the share of the variance and over the number of vectors."""
    rows = {"share": [f"{share:g} %" for share in SHARES], "vectors": [str(count) for count in VECTORS]}
    titles = {"share": "variance kept", "vectors": "eigenvectors kept"}
    panels = [
        Panel(titles[kind], rows[kind], values[f"{kind}_difference"], values[f"{kind}_standard_error"]) for kind in rows
    ]
    return rows_with_bars(panels, "final error minus that of 99 %, paired by seed", zero=True)
