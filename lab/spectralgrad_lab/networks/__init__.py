"""The networks of the papers, small ones for a CPU, and the user's own."""

from .config import LAYERS, POOLINGS, WEIGHTS, NetworkConfig
from .errors import NetworkError
from .registry import NETWORKS, build, pre_spectral

__all__ = [
    "LAYERS",
    "NETWORKS",
    "POOLINGS",
    "WEIGHTS",
    "NetworkConfig",
    "NetworkError",
    "build",
    "pre_spectral",
]
