"""Spectral layers as modules of torch.nn."""

from .spectral import SpectralModule

__all__ = ["SpectralModule"]
