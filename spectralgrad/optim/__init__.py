"""Treatments (NOG, OLR) of the layer before a spectral layer as optimiser hooks; inverse roots and eigenbases."""

from .._lazy import export as _export
from .coupled_roots import *
from .eigenbases import *
from .nearest_gradient import *
from .optimal_rate_hook import *
from .optimal_rates import *
from .preconditioning import *
from .step_hook import *
from .tracing import *

_export(__name__)
