"""Gradient and learning-rate treatments (NOG, OLR) for the layer before a spectral layer, as optimiser hooks."""

from .nearest import NearestOrthogonalGradient, nearest_orthogonal
from .olr import OptimalLearningRate
from .optimal_rates import optimal_rate
from .tracing import PreSpectral, pre_spectral_layers
from .treatment import ConditioningWarning

__all__ = [
    "ConditioningWarning",
    "NearestOrthogonalGradient",
    "OptimalLearningRate",
    "PreSpectral",
    "nearest_orthogonal",
    "optimal_rate",
    "pre_spectral_layers",
]
