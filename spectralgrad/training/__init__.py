"""Training protocols for networks with spectral layers."""

from .hybrid import HybridSwitch

__all__ = ["HybridSwitch"]
