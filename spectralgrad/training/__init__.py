"""Training protocols for networks with spectral layers: the hybrid switch and renewed running statistics."""

from .hybrid import HybridSwitch
from .statistics import renew_statistics

__all__ = ["HybridSwitch", "renew_statistics"]
