"""Spectral layers as ``torch.nn`` modules; the same operations without state are in ``functional``."""

from .._lazy import listing
from . import functional
from .base import SpectralModule, spectral_layers
from .coloring import WhiteningColoring2d
from .conversion import convert_decorrelated_batchnorm
from .denoising import PCADenoising1d, PCADenoising2d
from .dropcov import DropCov
from .fusion import fuse_whitening
from .orthogonal import OrthogonalConv2d, orthogonality_loss
from .pooling import CovariancePooling
from .token_pooling import TokenPooling
from .whitening import DecorrelatedBatchNorm1d, DecorrelatedBatchNorm2d, DecorrelatedBatchNorm3d
from .whitening_loss import WhiteningMSELoss

__dir__ = listing(__name__)
__all__ = [
    "CovariancePooling",
    "DecorrelatedBatchNorm1d",
    "DecorrelatedBatchNorm2d",
    "DecorrelatedBatchNorm3d",
    "DropCov",
    "OrthogonalConv2d",
    "PCADenoising1d",
    "PCADenoising2d",
    "SpectralModule",
    "TokenPooling",
    "WhiteningColoring2d",
    "WhiteningMSELoss",
    "convert_decorrelated_batchnorm",
    "functional",
    "fuse_whitening",
    "orthogonality_loss",
    "spectral_layers",
]
