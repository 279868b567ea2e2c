"""The first convolution: the rank of its covariance (Figs 1–4), and how the released code finds it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

import spectralgrad as sg
from spectralgrad.nn import OrthogonalConv2d
from spectralgrad.optim import NearestOrthogonalGradient
from spectralgrad.testing import random_orthogonal

from ..inputs import gaussian, uniform
from ..registry import computes
from ..value_conditions import Value
from .matrices import condition, eye, spectral_norm


def covariance_of(features: Tensor) -> Tensor:
    """The covariance (C, C) of feature maps (B, C, H, W)."""
    return sg.covariance(features.transpose(0, 1).flatten(1))


def rank(P: Tensor) -> int:
    """The number of eigenvalues above 1e-10 of the largest."""
    return int(torch.linalg.matrix_rank(P, hermitian=True, rtol=1e-10))


@computes("eccv/O24")
def ranks() -> Mapping[str, Value]:
    """Ranks of the 64×64 covariance behind a 3×3 convolution of colour images, and behind an orthogonal one."""
    images, W = uniform(16, 3, 16, 16), gaussian(64, 3, 3, 3)
    columns = random_orthogonal(64)[:, :27].reshape(64, 3, 3, 3)
    weights = (W, W / spectral_norm(W.flatten(1)), columns)
    orthogonal = OrthogonalConv2d(3, 64, bias=False, tolerance=5e-3, dtype=torch.float64)
    with torch.no_grad():
        P = covariance_of(orthogonal(images))
    return {
        "ranks": [rank(covariance_of(nn.functional.conv2d(images, w, padding=1))) for w in weights],
        "orthogonal_rank": rank(P),
        "orthogonal_condition": condition(P),
        "orthogonal_condition_with_eps": condition(P + 1e-2 * eye(64)),
    }


@computes("eccv/O29")
def found_by_name() -> Mapping[str, Value]:
    """Parameters called ``conv1.weight`` without and with DataParallel, and whether NOG finds the wrapped layer."""
    net = nn.Sequential()
    net.add_module("conv1", nn.Conv2d(3, 8, 3))
    plain = [name for name, _ in net.named_parameters()]
    wrapped = dict(nn.DataParallel(net).named_parameters())
    optimizer = torch.optim.SGD(wrapped.values(), lr=0.1)
    treated = NearestOrthogonalGradient(optimizer, net.conv1).targets[0].parameter
    return {
        "found_plain": plain.count("conv1.weight"),
        "found_wrapped": list(wrapped).count("conv1.weight"),
        "found_by_layer": treated is wrapped["module.conv1.weight"],
    }
