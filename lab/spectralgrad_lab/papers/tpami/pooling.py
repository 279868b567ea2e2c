"""What Algorithm 3 pools, as printed and as described."""

from __future__ import annotations

from collections.abc import Mapping

import torch

import spectralgrad as sg

from ..inputs import EPS, gaussian
from ..registry import computes
from ..value_conditions import Value


@computes("tpami/R48")
def permuted_positions() -> Mapping[str, Value]:
    """How much line 5 as printed, and the root S, change when the positions of the features are permuted."""
    X = gaussian(16, 64)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    results = []
    for features in (X, X[:, order]):
        centered = features - features.mean(-1, keepdim=True)
        S = sg.matrix_sqrt(centered @ centered.mT + EPS * torch.eye(16, dtype=X.dtype))
        results.append((S @ centered, S))
    printed, pooled = (float((b - a).norm() / a.norm()) for a, b in zip(*results, strict=True))
    return {"printed_change": printed, "pooled_change": pooled}
