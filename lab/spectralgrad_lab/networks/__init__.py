"""The networks of the papers, small networks for a CPU, and the user's own."""

from .config import LAYERS, WEIGHTS, NetworkConfig
from .errors import NetworkError
from .layer_search import layers_before_spectral, pre_spectral
from .published_form import FORMS, in_form
from .registry import NETWORKS, build
from .second_order import POOLINGS, UNDECOMPOSED, pooling_operation

__all__ = [
    "FORMS",
    "LAYERS",
    "NETWORKS",
    "POOLINGS",
    "UNDECOMPOSED",
    "WEIGHTS",
    "NetworkConfig",
    "NetworkError",
    "build",
    "in_form",
    "layers_before_spectral",
    "pooling_operation",
    "pre_spectral",
]
