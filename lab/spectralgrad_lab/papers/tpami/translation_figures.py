"""Figures 8 to 10: the network that translates pictures, and what its pictures at small size show."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from ...transfer.translation import TranslationConfig
from ...transfer.translation.networks import Generators
from ..registry import computes, trains
from ..training import Training
from ..value_conditions import Value
from .translation_tables import measure, runs

DIRECTIONS = ("to_paintings", "to_photos")


@computes("tpami/figure-8")
def architecture() -> Mapping[str, Value]:
    """What the networks of ``spectralgrad transfer train`` with the paper's settings are made of."""
    config = TranslationConfig()
    nets = Generators(config)
    hops = nets.b.decode.hops
    networks = [hop.network for hop in hops if isinstance(hop.network, nn.Module)]
    return {
        "hops": len(hops),
        "pairs": sum(len(list(network.children())) == 2 for network in networks),
        "channels": 4 * config.width,
        "groups": config.groups,
        "matrix": 4 * config.width // config.groups,
        "generators": len(nets.both),
    }


@trains("tpami/figure-9")
def details(train: Training) -> Mapping[str, Value]:
    """How much sharper the translations of SVD-WCT are than GD-WCT's, in both directions."""
    return {"ahead": _ahead(train, "sharpness")}


@trains("tpami/figure-10")
def removed_style(train: Training) -> Mapping[str, Value]:
    """How much more often translations of SVD-WCT pass for pictures of the other domain than GD-WCT's do."""
    return {"ahead": _ahead(train, "accuracy")}


def _ahead(train: Training, name: str) -> list[float]:
    values = measure(runs(train), name)
    return [round(values[direction][1] - values[direction][0], 3) for direction in DIRECTIONS]
