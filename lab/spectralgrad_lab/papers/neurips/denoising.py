"""PCA denoising: what all eigenvectors do, how many a share of the variance needs, and what the layer costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter

import torch
from torch import Tensor, nn

import spectralgrad as sg
from spectralgrad.nn import PCADenoising2d
from spectralgrad.testing import relative_error, with_spectrum
from spectralgrad_lab.published.printed import printed

from ..inputs import gaussian, uniform
from ..registry import computes
from ..value_conditions import Value
from .power_iteration import SPREAD

TABLES = printed("neurips")
SHARES = (0.85, 0.99, 0.995, 0.999)


def vectors_needed(w: Tensor, share: float) -> int:
    """The fewest leading eigenvalues that reach a share of their sum."""
    total = w.flip(-1).cumsum(-1) / w.sum()
    return int((total < share).sum()) + 1


@computes("neurips/B15")
def everything_kept() -> Mapping[str, Value]:
    """Projection on 6 and on 5 of 6 eigenvectors against the standardised input; the layer against BatchNorm2d."""
    X = with_spectrum(SPREAD) @ gaussian(6, 50)
    standard = (X - X.mean(-1, keepdim=True)) / X.std(-1, correction=0, keepdim=True)
    C = sg.covariance(standard)
    errors = [relative_error(sg.spectral_projector(C, keep) @ standard, standard) for keep in (6, 5)]
    images = gaussian(8, 6, 5, 5, seed=1)
    layers = (PCADenoising2d(6, keep=1.0, dtype=torch.float64), nn.BatchNorm2d(6, dtype=torch.float64))
    ours, theirs = (layer(images) for layer in layers)
    cell, baseline = TABLES["table-4"]["a"]["error"][-1], TABLES["table-5"]["BN"]["mean"]
    return {
        "all": errors[0],
        "all_but_one": errors[1],
        "layer": relative_error(ours, theirs),
        "same_cell": cell == baseline,
    }


@computes("neurips/B16")
def vectors_and_variance() -> Mapping[str, Value]:
    """How many eigenvectors shares of the variance need: after a 3×3 convolution of white noise, in random spectra.

    White noise uses all 3·3·3 = 27 inputs of the convolution alike; photographs need fewer eigenvectors.
    """
    features = nn.functional.conv2d(gaussian(64, 3, 16, 16), gaussian(64, 3, 3, 3, seed=1)).transpose(0, 1).flatten(1)
    standard = (features - features.mean(1, keepdim=True)) / features.std(1, correction=0, keepdim=True)
    w = sg.eigh(sg.covariance(standard)).eigenvalues
    random = uniform(300, 64).pow(8).sort(-1).values
    text = TABLES["section-3-2"]
    return {
        "rank": int((w > 1e-10 * w[-1]).sum()),
        "noise": [vectors_needed(w, share) for share in SHARES],
        "monotone": all(vectors_needed(x, 0.995) <= vectors_needed(x, 0.999) for x in random),
        "stated_995_above_999": text["fewer_than"][-1] - text["vectors_for_99_9"],
    }


@computes("neurips/B19")
def time_penalty() -> Mapping[str, Value]:
    """The printed times as a penalty in per cent; and the layer with 2 power iterations against BatchNorm2d here."""
    text = TABLES["section-3-2"]
    x = gaussian(32, 64, 16, 16, dtype=torch.float32)
    layers = (PCADenoising2d(64, method=sg.SVDPI(iterations=2)), nn.BatchNorm2d(64))
    ours, theirs = (median(_milliseconds(layer, x) for _ in range(9)) for layer in layers)
    return {
        "penalty": 100 * (float(text["ms_ours"]) / float(text["ms_batch_normalization"]) - 1),
        "layer_ms": ours,
        "batch_normalization_ms": theirs,
        "layer_over_batch_normalization": ours / theirs,
    }


def _milliseconds(layer: Callable[[Tensor], Tensor], x: Tensor) -> float:
    start = perf_counter()
    x = x.clone().requires_grad_()
    layer(x).square().sum().backward()  # type: ignore[no-untyped-call]
    return 1000 * (perf_counter() - start)
