"""Points before and after whitening, and a transfer of colours (Fig. 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.nn import functional

from ..drawing import COLORS, blank, caption
from ..inputs import gaussian, tensor
from ..registry import computes, draws
from ..value_conditions import Value

HEIGHT, WIDTH = 36, 54
KINDS: tuple[Literal["pca", "zca"], ...] = ("pca", "zca")


def landscape(sky: Tensor, low: Tensor, ground: Tensor, sun: Tensor, seed: int) -> Tensor:
    """A simple colour image (3, 36, 54): a sky that fades to ``low``, a sun, two hills and a little noise."""
    y, x = torch.meshgrid(torch.linspace(0, 1, HEIGHT), torch.linspace(0, 1.5, WIDTH), indexing="ij")
    fade = (y / 0.7).clamp(max=1)
    image = sky[:, None, None] * (1 - fade) + low[:, None, None] * fade
    disc = (0.14 - ((x - 1.1) ** 2 + (y - 0.25) ** 2).sqrt()).mul(25).sigmoid()
    image = image * (1 - disc) + sun[:, None, None] * disc
    for height, phase, shade in ((0.62, 0.0, 0.75), (0.75, 2.0, 1.0)):
        hill = (y - height + 0.09 * torch.sin(5 * x + phase)).mul(60).sigmoid()
        image = image * (1 - hill) + ground[:, None, None] * (shade + 0.2 * (y - height)) * hill
    return (image.double() + 0.02 * gaussian(3, HEIGHT, WIDTH, seed=seed)).clamp(0, 1)


def two_images() -> tuple[Tensor, Tensor]:
    """Image A, a day with blue sky and green hills, and image B, an evening with a red sky, the other way round."""
    day = landscape(tensor(0.25, 0.5, 0.9), tensor(0.8, 0.9, 1.0), tensor(0.2, 0.55, 0.15), tensor(1.0, 0.95, 0.6), 1)
    evening = landscape(
        tensor(0.35, 0.1, 0.35), tensor(1.0, 0.55, 0.15), tensor(0.25, 0.12, 0.18), tensor(1.0, 0.85, 0.45), 2
    )
    return day, evening.flip(-1)


def turn(X: Tensor, Y: Tensor) -> float:
    """The angle in degrees by which the map from X to Y turns the direction in which X varies most."""
    axis = sg.eigh(sg.covariance(X)).eigenvectors[:, -1]
    moved = Y @ (axis @ X)  # the covariance of Y with the coordinate along the axis
    return float(torch.rad2deg(torch.acos((axis @ moved / moved.norm()).abs().clamp(max=1))))


def hexadecimal(image: Tensor) -> list[str]:
    """An image (3, H, W) as rows of pixels, two hexadecimal digits for each color."""
    bytes_ = (255 * image.clamp(0, 1)).round().to(torch.uint8).permute(1, 2, 0).flatten(1)
    return [bytes(row).hex() for row in bytes_.tolist()]


def pixels(rows: Sequence[str]) -> np.ndarray:
    """The image (H, W, 3) that :func:`hexadecimal` wrote."""
    return np.array([list(bytes.fromhex(row)) for row in rows], dtype=np.uint8).reshape(len(rows), -1, 3)


@computes("tpami/figure-2")
def pictures() -> Mapping[str, Value]:
    """Correlated points, whitened by PCA and by ZCA, and image A in the colours of image B."""
    X = tensor(1.5, 0.8, 0.8, 1.0).view(2, 2) @ gaussian(2, 200, seed=4)
    X = X - X.mean(-1, keepdim=True)
    pca, zca = (functional.whiten(X[None], whitening=kind, eps=0.0)[0] for kind in KINDS)
    identity = torch.eye(2, dtype=torch.float64)
    a, b = two_images()
    moved = functional.wct(a[None], b[None], eps=0.0)[0]
    errors = [sg.covariance(moved.flatten(1)) - sg.covariance(b.flatten(1)), (moved - b).flatten(1).mean(-1)]
    return {
        "points": [[[round(v, 4) for v in row] for row in P.tolist()] for P in (X, pca, zca)],
        "marked": [int(i) for i in X.square().sum(0).argsort()[-12:]],
        "images": [hexadecimal(image) for image in (a, b, moved)],
        "covariances": [float((sg.covariance(P) - identity).abs().max()) for P in (pca, zca)],
        "pca_turn": turn(X, pca),
        "zca_turn": turn(X, zca),
        "color_error": max(float(error.abs().max()) for error in errors),
    }


@draws("tpami/figure-2")
def draw_pictures(values: Mapping[str, Any]) -> Any:
    """Three panels of points above three images."""
    figure = blank(9.6, 5.2)
    panels = figure.subplots(2, 3)
    titles = ("(a) data", "(b) PCA whitening", "(c) ZCA whitening")
    for axes, (x, y), title in zip(panels[0], values["points"], titles, strict=True):
        axes.scatter(x, y, s=9, color=COLORS["blue"], alpha=0.5, linewidths=0, rasterized=True)
        marked = values["marked"]
        axes.scatter([x[i] for i in marked], [y[i] for i in marked], s=22, color=COLORS["red"], linewidths=0)
        caption(axes, "$x_1$", "$x_2$", title)
        axes.set(xlim=(-6, 6), ylim=(-4.5, 4.5), aspect="equal")
    for axes, image, title in zip(
        panels[1], values["images"], ("(d) image A", "(d) image B", "(d) A with the colours of B"), strict=True
    ):
        axes.imshow(pixels(image), interpolation="nearest")
        axes.set_title(title, fontsize=10)
        axes.set_axis_off()
    return figure
