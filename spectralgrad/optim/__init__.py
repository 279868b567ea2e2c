"""Treatments (NOG, OLR) of the layer before a spectral layer as optimiser hooks; inverse roots and eigenbases."""

from .._lazy import listing
from .coupled_roots import CoupledRoot, coupled_inverse_root
from .eigenbases import Eigenbasis, eigenbasis
from .nearest_gradient import NearestOrthogonalGradient, nearest_orthogonal
from .optimal_rate_hook import OptimalLearningRate
from .optimal_rates import optimal_rate
from .preconditioning import inverse_root, inverse_roots
from .step_hook import ConditioningWarning
from .tracing import PreSpectral, pre_spectral_layers

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
