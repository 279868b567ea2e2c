"""Training protocols for networks with spectral layers: the hybrid switch and renewed running statistics."""

from .._lazy import listing
from .hybrid import HybridSwitch
from .statistics import renew_statistics

__dir__ = listing(__name__)
__all__ = ["HybridSwitch", "renew_statistics"]
