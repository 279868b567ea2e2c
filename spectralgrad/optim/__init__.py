"""Treatments (NOG, OLR) of the layer before a spectral layer as optimiser hooks, and inverse roots for Shampoo."""

from .._lazy import listing
from .nearest import NearestOrthogonalGradient, nearest_orthogonal
from .olr import OptimalLearningRate
from .optimal_rates import optimal_rate
from .preconditioning import inverse_root, inverse_roots
from .tracing import PreSpectral, pre_spectral_layers
from .treatment import ConditioningWarning

__dir__ = listing(__name__)
__all__ = [
    "ConditioningWarning",
    "NearestOrthogonalGradient",
    "OptimalLearningRate",
    "PreSpectral",
    "inverse_root",
    "inverse_roots",
    "nearest_orthogonal",
    "optimal_rate",
    "pre_spectral_layers",
]
