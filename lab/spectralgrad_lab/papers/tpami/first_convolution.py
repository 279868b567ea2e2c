"""Covariances of the first convolution of a ResNet for CIFAR: rank, clamped eigenvalues, ties; and Table 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean

import torch
from torch import Tensor, nn

import spectralgrad as sg

from ...published.printed import printed
from ..inputs import gradient
from ..registry import computes
from ..value_conditions import Value

FILTERS, EPS = 64, 1e-2


def images(seed: int, count: int = 16) -> Tensor:
    """Smooth random images (count, 3, 32, 32) with unit variance: white noise averaged over 7×7 pixels."""
    noise = torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
    smooth = nn.functional.avg_pool2d(nn.functional.pad(noise, (3, 3, 3, 3), mode="reflect"), 7, 1)
    return smooth / smooth.std()


def first_features(seed: int) -> Tensor:
    """The features (64, positions) of a 3×3 convolution with torch's initial weights."""
    torch.manual_seed(seed)
    convolution = nn.Conv2d(3, FILTERS, 3, padding=1, bias=False)
    with torch.no_grad():
        return convolution(images(seed)).transpose(0, 1).flatten(1)


def covariances(X: Tensor, d: int, eps: float = EPS) -> Tensor:
    """The covariances (64/d, d, d) of groups of d channels, with ε on the diagonal."""
    return sg.covariance(X.unflatten(0, (FILTERS // d, d)), eps=eps)


def batches(count: int) -> Iterator[Tensor]:
    """Features of so many networks, each with images of its own."""
    return (first_features(seed) for seed in range(count))


def rank(X: Tensor) -> int:
    """The rank of the covariance, from its eigenvalues in float64."""
    w = torch.linalg.eigvalsh(covariances(X.double(), FILTERS, 0.0)[0])
    return int((w > 1e-10 * w[-1]).sum())


@computes("tpami/R17")
def clamped_eigenvalues() -> Mapping[str, Value]:
    """How many of the 64 eigenvalues of the first whitening layer are at most ε = 0.01 in float32, for 20 networks."""
    found = list(batches(20))
    counts = [int((sg.eigh(covariances(X, FILTERS)[0]).eigenvalues <= EPS).sum()) for X in found]
    ranks = [rank(X) for X in found[:5]]
    at_eps = [int((sg.eigh(covariances(X, FILTERS)[0]).eigenvalues <= EPS * (1 + 1e-3)).sum()) for X in found]
    return {
        "mean": fmean(counts),
        "fewest": min(counts),
        "most": max(counts),
        "rank": ranks,
        "at_eps": [min(at_eps), max(at_eps)],
    }


def tied(X: Tensor, d: int) -> bool:
    """Whether two computed eigenvalues of a group of d channels are equal."""
    return bool((sg.eigh(covariances(X, d)).eigenvalues.diff() == 0).any())


def has_gradient(X: Tensor, d: int) -> bool:
    """Whether the plain gradient of the whitening matrices is finite."""
    M = covariances(X, d)
    return bool(gradient(lambda A: sg.matrix_inv_sqrt(A, method="svd"), M, M.new_ones(M.shape)).isfinite().all())


@computes("tpami/R47")
def ties() -> Mapping[str, Value]:
    """In how many of 20 first batches computed eigenvalues tie and the plain gradient is not finite, in float32.

    The images have unit variance; "dark" ones have 0.3 of its amplitude, which brings λ1 nearer to ε.
    """
    sizes, found = (4, 8, 16, 32, 64), list(batches(20))
    return {
        "rank": sorted({rank(X) for X in found}),
        "ties": [fmean(tied(X, d) for X in found) for d in sizes],
        "not_finite": [fmean(not has_gradient(X, d) for X in found) for d in sizes],
        "dark_ties": [fmean(tied(0.3 * X, d) for X in found) for d in sizes],
    }


def after_strides(size: int, strides: list[int]) -> int:
    """The side of an image after 3×3 convolutions with these strides."""
    x = torch.zeros(1, 1, size, size)
    for stride in strides:
        x = nn.functional.conv2d(x, torch.zeros(1, 1, 3, 3), stride=stride, padding=1)
    return x.shape[-1]


@computes("tpami/R34")
def feature_sizes() -> Mapping[str, Value]:
    """The features before the pooling of Table 2, for images of 32 and 64 pixels, and the groups of section 5.3.3."""
    table = printed("tpami")["table-2"]
    sizes = {size: after_strides(size, table["strides"]) for size in (32, 64)}
    return {
        "before_pooling": sizes[32],
        "pooled": sizes[32] // table["pooling"],
        "tiny_before_pooling": sizes[64],
        "tiny_pooled": sizes[64] // table["pooling"],
    }
