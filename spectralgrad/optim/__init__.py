"""Treatments (NOG, OLR) of the layer before a spectral layer as optimiser hooks; inverse roots and eigenbases."""

from .._lazy import listing
from .coupled_roots import CoupledRoot, coupled_inverse_root
from .eigenbases import Eigenbasis, eigenbasis
from .nearest import NearestOrthogonalGradient, nearest_orthogonal
from .olr import OptimalLearningRate
from .optimal_rates import optimal_rate
from .preconditioning import inverse_root, inverse_roots
from .tracing import PreSpectral, pre_spectral_layers
from .treatment import ConditioningWarning

__dir__ = listing(__name__)
__all__ = [
    "ConditioningWarning",
    "CoupledRoot",
    "Eigenbasis",
    "NearestOrthogonalGradient",
    "OptimalLearningRate",
    "PreSpectral",
    "coupled_inverse_root",
    "eigenbasis",
    "inverse_root",
    "inverse_roots",
    "nearest_orthogonal",
    "optimal_rate",
    "pre_spectral_layers",
]
