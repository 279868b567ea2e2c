"""Spectral layers as modules of torch.nn."""

from .orthogonal import OrthogonalConv2d, orthogonality_loss
from .spectral import SpectralModule

__all__ = ["OrthogonalConv2d", "SpectralModule", "orthogonality_loss"]
