"""Training protocols for networks with spectral layers."""

from .hybrid import HybridSwitch
from .statistics import renew_statistics

__all__ = ["HybridSwitch", "renew_statistics"]
