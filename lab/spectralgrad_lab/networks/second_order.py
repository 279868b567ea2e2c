r"""Second-order pooling: what replaces average pooling before the classifier, by name.

All of them are built from the second moment of an image's features or from their covariance. TPAMI 2021 compares the
older ones in Table 7; RiemGCP, SEB, So-ViT and DropCov are later.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from spectralgrad import covariance
from spectralgrad.nn import CovariancePooling, DropCov, TokenPooling
from spectralgrad.nn.functional import upper_triangle

HEADS: dict[str, Any] = {"covariance": "plain", "scaled-power": "scaled", "tangent-power": "tangent", "seb": "seb"}
"""The poolings that are covariance pooling with one of its heads."""
UNDECOMPOSED = ("average", "bcnn", "dropcov", "tokens")
"""The poolings without a method. Token pooling decomposes, but its gradient has one form only."""
POOLINGS = (
    "average", "covariance", "bcnn", "improved-bcnn", "deepo2p", "g2denet", "scaled-power", "tangent-power", "seb",
    "dropcov", "tokens",
)  # fmt: skip
TOKEN_HEADS = 6
"""Heads of token pooling, as in SoT; the size of a head is chosen for about as many values as a covariance has."""
LOG_EPS = 1e-3
"""ε of the matrix logarithm if none is given: without one the logarithm of a singular matrix does not exist."""
_SMOOTH = 1e-8  # entries of this size and smaller have no square root with a usable derivative


def pooling_operation(pooling: str, power: float) -> str | None:
    """What a pooling decomposes for, as in ``methods(operation)``; None if it decomposes nothing.

    Args:
        pooling: a name in ``POOLINGS``.
        power: exponent of ``"covariance"``, ``"scaled-power"`` and ``"tangent-power"``.

    Example:
        >>> pooling_operation("covariance", 0.5), pooling_operation("deepo2p", 0.5), pooling_operation("bcnn", 0.5)
        ('sqrt', 'log', None)
    """
    if pooling in UNDECOMPOSED:
        return None
    if pooling in HEADS:
        return CovariancePooling(1, power=power).operation
    return "log" if pooling == "deepo2p" else "sqrt"


def second_order_pooling(
    pooling: str, channels: int, power: float, normalize: bool, spectral: dict[str, Any]
) -> tuple[nn.Module, int]:
    """A layer that pools features (N, channels, *), and the number of values that it returns for each image.

    * ``"covariance"``: a power of the covariance (MPN-COV, iSQRT-COV).
    * ``"bcnn"``: the second moment, its signed roots entry by entry, divided by their norm.
    * ``"improved-bcnn"``: the same with the matrix square root of the second moment.
    * ``"deepo2p"``: the matrix logarithm of the second moment plus ε.
    * ``"scaled-power"``, ``"tangent-power"``: :math:`C^\\alpha/\\alpha` and :math:`(C^\\alpha-I)/\\alpha` (RiemGCP).
    * ``"seb"``: the scaling eigen branch.
    * ``"dropcov"``: the covariance itself, after adaptive channel dropout.
    * ``"tokens"``: square roots of the singular values of cross-covariances in six heads, with the positions as tokens
      (So-ViT). Each head has :math:`\\sqrt{C(C+1)/12}` dimensions, rounded, so that the sizes of all poolings agree.
    * ``"g2denet"``: the matrix square root of the Gaussian embedding :math:`[[\\Sigma+\\mu\\mu^T, \\mu], [\\mu^T, 1]]`.

    Args:
        pooling: one of these names.
        channels: of the features.
        power: exponent of ``"covariance"``, ``"scaled-power"`` and ``"tangent-power"``.
        normalize: whether ``"covariance"`` divides by the Frobenius norm.
        spectral: keyword arguments of the layer that decomposes: ``method``, ``eps``, ``compute_dtype``.

    Example:
        >>> layer, features = second_order_pooling("g2denet", 4, 0.5, False, {"method": "exact"})
        >>> features, layer(torch.randn(2, 4, 3, 3)).shape
        (15, torch.Size([2, 15]))

    Reference: Lin et al., Bilinear CNN Models, ICCV 2015; Lin and Maji, Improved Bilinear Pooling with CNNs, BMVC 2017;
    Ionescu et al., Matrix Backpropagation for Deep Networks with Structured Layers, ICCV 2015; Wang et al., G2DeNet,
    CVPR 2017; Li et al., MPN-COV, ICCV 2017; Chen et al., RiemGCP, ICLR 2025; Song et al., SEB, TPAMI 2022; Xie et al.,
    SoT, arXiv 2104.10935; Wang et al., DropCov, NeurIPS 2022.
    """
    triangle = channels * (channels + 1) // 2
    if pooling in HEADS:
        return CovariancePooling(channels, power=power, normalize=normalize, head=HEADS[pooling], **spectral), triangle
    if pooling == "dropcov":
        return DropCov(channels), triangle
    if pooling == "tokens":
        tokens = TokenPooling(channels, TOKEN_HEADS, max(1, round((triangle / TOKEN_HEADS) ** 0.5)))
        return nn.Sequential(Positions(), tokens), tokens.out_features
    if pooling == "bcnn":
        return nn.Sequential(SecondMoment(), SignedRoots()), triangle
    if pooling == "improved-bcnn":
        root = CovariancePooling(channels, center=False, output="full", **spectral)
        return nn.Sequential(root, SignedRoots()), triangle
    if pooling == "deepo2p":
        return CovariancePooling(channels, power="log", center=False, **{"eps": LOG_EPS, **spectral}), triangle
    # The second moment of (x, 1) is the embedding of the Gaussian with the mean and the covariance of x.
    gaussian = CovariancePooling(channels + 1, center=False, **spectral)
    return nn.Sequential(AppendOne(), gaussian), gaussian.out_features


class SecondMoment(nn.Module):
    """The mean of the outer products of the features at all positions: (N, C, *) → (N, C, C).

    Example:
        >>> SecondMoment()(torch.ones(1, 2, 3, 3))
        tensor([[[1., 1.],
                 [1., 1.]]])
    """

    def forward(self, x: Tensor) -> Tensor:
        return covariance(x.flatten(2), center=False)


class Positions(nn.Module):
    """The positions of features as tokens: (N, C, *) → (N, n, C).

    Example:
        >>> Positions()(torch.zeros(1, 2, 3, 4)).shape
        torch.Size([1, 12, 2])
    """

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).mT


class AppendOne(nn.Module):
    """Append a channel of ones: (N, C, *) → (N, C + 1, n).

    Example:
        >>> AppendOne()(torch.zeros(1, 2, 1, 2))
        tensor([[[0., 0.],
                 [0., 0.],
                 [1., 1.]]])
    """

    def forward(self, x: Tensor) -> Tensor:
        return functional.pad(x.flatten(2), (0, 0, 0, 1), value=1.0)


class SignedRoots(nn.Module):
    r"""Signed square roots of the entries of symmetric matrices, as a vector of norm 1: (N, C, C) → (N, C(C+1)/2).

    An entry x becomes :math:`x/\sqrt{|x|+\delta}` with δ = 1e-8, which is :math:`\mathrm{sign}(x)\sqrt{|x|}` for
    |x| ≫ δ and has a derivative of at most :math:`1/\sqrt\delta` at zero, where the root has none. Entries above the
    diagonal are multiplied by √2, so norms and inner products equal the whole matrix's, at half its size.

    Example:
        >>> SignedRoots()(torch.tensor([[[1.0, -4.0], [-4.0, 16.0]]])) * 5
        tensor([[ 1.0000, -2.8284,  4.0000]])

    Reference: Lin et al., Bilinear CNN Models, ICCV 2015, Section 3.
    """

    def forward(self, S: Tensor) -> Tensor:
        roots = S / (S.abs() + _SMOOTH).sqrt()
        d = S.shape[-1]
        weight = torch.full((d, d), 2**0.5, dtype=S.dtype, device=S.device).fill_diagonal_(1.0)
        return functional.normalize(upper_triangle(roots * weight), dim=-1)
