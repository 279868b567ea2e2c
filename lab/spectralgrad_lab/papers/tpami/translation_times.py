"""How long the translation of a picture takes by whitening method, and one whitening alone (Table 10)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from ...published.printed import printed
from ...transfer.measures import fastest, reference_times
from ...transfer.translation.whitening import GD, Whitening
from ..drawing import COLORS, canvas, dress
from ..inputs import gaussian
from ..registry import computes, draws
from ..value_conditions import Value

METHODS = {
    "gd-wct": GD,
    "clip-wct": "svd-clip",
    "pi-wct": "svd-pi:unrolled=True",
    "svd-wct": "svd-taylor",
    "exact": "exact",
}
"""The methods of Table 10, and ours; power iteration deflates step by step, as the paper says of PI-WCT."""
CHANNELS, GROUPS, SIDE = 256, 8, 64
"""Of the features of a 256×256 picture."""
PICTURES, WHITENINGS = 3, 15
"""Rounds of timing."""


def whitening_times() -> dict[str, float]:
    """Seconds of one whitening and colouring of the features of a picture, without gradients, by method."""
    x, mean = gaussian(1, CHANNELS, SIDE, SIDE, dtype=torch.float32), gaussian(1, CHANNELS, dtype=torch.float32)
    matrix = gaussian(1, GROUPS, CHANNELS // GROUPS, CHANNELS // GROUPS, dtype=torch.float32)
    layers = {name: Whitening(method, "published").layer(GROUPS) for name, method in METHODS.items()}
    with torch.no_grad():
        return fastest(
            {name: partial(layer, x, matrix=matrix, mean=mean) for name, layer in layers.items()}, WHITENINGS
        )


@computes("tpami/table-10-times")
def times() -> Mapping[str, Value]:
    """Milliseconds of a 256×256 picture through the paper's network with random weights, and of one whitening."""
    found = reference_times(METHODS.values(), rounds=PICTURES)
    pictures = {name: 1e3 * found[method] for name, method in METHODS.items()}
    whitenings = {name: 1e3 * seconds for name, seconds in whitening_times().items()}
    rows = printed("tpami")["table-10"]["rows"]
    return {
        "methods": [name.removesuffix("-wct") for name in METHODS],
        "picture": [round(ms, 1) for ms in pictures.values()],
        "whitening": [round(ms, 2) for ms in whitenings.values()],
        "printed": [float(rows.get(name, "nan")) for name in METHODS],
        "gd_over_svd": whitenings["gd-wct"] / whitenings["svd-wct"],
        "clip_over_svd": whitenings["clip-wct"] / whitenings["svd-wct"],
        "pi_over_svd": whitenings["pi-wct"] / whitenings["svd-wct"],
        "share": 5 * whitenings["svd-wct"] / pictures["svd-wct"],
    }


@draws("tpami/table-10-times")
def draw_times(values: Mapping[str, Any]) -> Any:
    """Bars of a picture and of a whitening on this CPU, and of the printed times."""
    figure, axes = canvas(1, 3, width=3.6, height=2.8)
    panels = {
        "picture": "a 256×256 picture, this CPU",
        "whitening": "one whitening, this CPU",
        "printed": "printed, GPU",
    }
    for place, (name, title) in zip(axes, panels.items(), strict=True):
        heights = range(len(values["methods"]))
        place.barh(heights, values[name], color=COLORS["sky"])
        place.set_yticks(heights, values["methods"])
        place.invert_yaxis()
        dress(place, xlabel="milliseconds", legend=False)
        place.set_title(title, fontsize=9, loc="left")
    return figure
