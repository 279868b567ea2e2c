"""The networks of the papers, small networks for a CPU, and the user's own."""

from .config import LAYERS, POOLINGS, WEIGHTS, NetworkConfig
from .errors import NetworkError
from .layer_search import layers_before_spectral, pre_spectral
from .registry import NETWORKS, build

__all__ = [
    "LAYERS",
    "NETWORKS",
    "POOLINGS",
    "WEIGHTS",
    "NetworkConfig",
    "NetworkError",
    "build",
    "layers_before_spectral",
    "pre_spectral",
]
