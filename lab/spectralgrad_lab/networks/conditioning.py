"""The small networks of the conditioning studies: whitening after the first convolution, or covariance pooling.

The layer before the spectral one takes the treatments of ECCV 2022 that change the network: spectral normalization (SN)
and orthogonal weights (OW). BN and NS stand for batch normalization and for Newton–Schulz in place of the SVD.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn
from torch.nn.utils import parametrizations

from spectralgrad.nn import CovariancePooling, DecorrelatedBatchNorm2d, OrthogonalConv2d


def pre_spectral_layer(inputs: int, channels: int, kernel: int, treatments: Collection[str]) -> nn.Module:
    """The convolution before the spectral layer; an orthogonal one is 3×3 and as accurate as in the released code."""
    if "OW" in treatments:
        return OrthogonalConv2d(inputs, channels, 3, bias=False, tolerance=5e-3)
    layer = nn.Conv2d(inputs, channels, kernel, padding=kernel // 2, bias=False)
    return parametrizations.spectral_norm(layer) if "SN" in treatments else layer


def whitening_network(channels: int, kernel: int, eps: float, treatments: Collection[str]) -> nn.Sequential:
    """A first convolution of gray images, whitening, and two convolutions with batch normalization, for ten classes.

    Layer 0 is the convolution and layer 1 the whitening. Whitening computes in float64, so that an ε of 1e-6 has an
    effect, and always uses batch statistics.
    """
    whiten = DecorrelatedBatchNorm2d(
        channels,
        eps,
        affine=False,
        track_running_stats=False,
        method=_method(treatments),
        compute_dtype=torch.float64,
    )
    normalize = nn.BatchNorm2d(channels, affine=False, track_running_stats=False)
    return nn.Sequential(
        pre_spectral_layer(1, channels, kernel, treatments), normalize if "BN" in treatments else whiten, nn.ReLU(),
        nn.Conv2d(channels, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def pooling_network(channels: int, eps: float, treatments: Collection[str]) -> nn.Sequential:
    """Two convolutions with batch normalization, one more, and the square root of its covariance, for ten classes.

    Layer 6 is the convolution before the pooling and layer 8 the pooling. An image of 14×14 pixels leaves 4×4
    positions, fewer than channels, as in the networks of the papers.
    """
    pool = CovariancePooling(channels, eps=eps, method=_method(treatments), compute_dtype=torch.float64)
    features = channels * (channels + 1) // 2
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, channels, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
        pre_spectral_layer(channels, channels, 3, treatments), nn.BatchNorm2d(channels), pool,
        nn.BatchNorm1d(features), nn.Linear(features, 10),
    )  # fmt: skip


def _method(treatments: Collection[str]) -> str:
    return "newton-schulz" if "NS" in treatments else "svd-pade"  # the paper's stable SVD gradient
