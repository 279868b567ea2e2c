"""A small layer of every kind, and an input for it, for properties that concern all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import spectralgrad as sg

Maker = tuple[Callable[..., nn.Module], tuple[int, ...]]

# name → (layer of 8 channels, shape of its input)
RUNNING: dict[str, Maker] = {
    "DecorrelatedBatchNorm1d": (lambda **o: sg.nn.DecorrelatedBatchNorm1d(8, **o), (40, 8)),
    "DecorrelatedBatchNorm1d-3D": (lambda **o: sg.nn.DecorrelatedBatchNorm1d(8, **o), (6, 8, 7)),
    "DecorrelatedBatchNorm2d": (lambda **o: sg.nn.DecorrelatedBatchNorm2d(8, **o), (4, 8, 5, 3)),
    "DecorrelatedBatchNorm2d-groups": (lambda **o: sg.nn.DecorrelatedBatchNorm2d(8, groups=4, **o), (4, 8, 5, 3)),
    "DecorrelatedBatchNorm2d-pca": (lambda **o: sg.nn.DecorrelatedBatchNorm2d(8, whitening="pca", **o), (4, 8, 5, 3)),
    "DecorrelatedBatchNorm2d-cholesky": (
        lambda **o: sg.nn.DecorrelatedBatchNorm2d(8, whitening="cholesky", **o),
        (4, 8, 5, 3),
    ),
    "DecorrelatedBatchNorm2d-whitening": (
        lambda **o: sg.nn.DecorrelatedBatchNorm2d(8, statistics="whitening", **o),
        (4, 8, 5, 3),
    ),
    "DecorrelatedBatchNorm3d": (lambda **o: sg.nn.DecorrelatedBatchNorm3d(8, groups=2, **o), (3, 8, 3, 4, 2)),
    "PCADenoising1d": (lambda **o: sg.nn.PCADenoising1d(8, keep=5, **o), (40, 8)),
    "PCADenoising2d": (lambda **o: sg.nn.PCADenoising2d(8, keep=0.8, **o), (4, 8, 5, 3)),
    "PCADenoising2d-projector": (
        lambda **o: sg.nn.PCADenoising2d(8, keep=5, groups=1, statistics="projector", **o),
        (4, 8, 5, 3),
    ),
}


class _Transfer(nn.Module):
    """A transfer layer with one input: half of the batch is the content, half the style."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = sg.nn.WhiteningColoring2d(groups=2)

    def forward(self, X: Tensor) -> Any:
        return self.layer(*X.chunk(2))


class _Tokens(nn.Module):
    """Token pooling with the features in dimension 1."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.layer = sg.nn.TokenPooling(8, num_heads=2, head_dim=3, **options)

    def forward(self, X: Tensor) -> Any:
        return self.layer(X.flatten(2).mT)


STATELESS: dict[str, Maker] = {
    "CovariancePooling": (lambda **o: sg.nn.CovariancePooling(8, reduce_to=5, **o), (4, 8, 5, 3)),
    "CovariancePooling-positions": (lambda **o: sg.nn.CovariancePooling(8, **o), (4, 8, 2, 3)),
    "CovariancePooling-log": (
        lambda **o: sg.nn.CovariancePooling(8, power="log", eps=0.1, normalize=True, output="full", **o),
        (4, 8, 5, 3),
    ),
    "CovariancePooling-seb": (lambda **o: sg.nn.CovariancePooling(8, head="seb", **o), (4, 8, 2, 3)),
    "CovariancePooling-tangent": (lambda **o: sg.nn.CovariancePooling(8, head="tangent", power=0.3, **o), (4, 8, 5, 3)),
    "WhiteningColoring2d": (lambda **o: _Transfer(**o), (4, 8, 5, 3)),
}
WITHOUT_METHOD: dict[str, Maker] = {
    "DropCov": (lambda **o: sg.nn.DropCov(8, **o).eval(), (4, 8, 5, 3)),
    "TokenPooling": (lambda **o: _Tokens(**o), (4, 8, 5, 3)),
    "TokenPooling-leading": (lambda **o: _Tokens(leading=2, iterations=2, **o), (4, 8, 5, 3)),
}
LAYERS: dict[str, Maker] = {**RUNNING, **STATELESS, **WITHOUT_METHOD}


def layer_and_input(
    name: str, dtype: torch.dtype = torch.float64, seed: int = 0, **options: Any
) -> tuple[nn.Module, Tensor]:
    """A layer in the type given and an input of spread-out, correlated features."""
    make, shape = LAYERS[name]
    torch.manual_seed(seed)
    mix = torch.randn(8, 8, dtype=torch.float64) + 2 * torch.eye(8, dtype=torch.float64)
    X = torch.tensordot(torch.randn(shape, dtype=torch.float64), mix, ([1], [1])).movedim(-1, 1)
    layer = make(**options).to(dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer, X.to(dtype).contiguous()
