"""The named gradient methods, each a frozen dataclass, and the registry that looks them up by name."""

from .._lazy import listing
from .base import GapMethod, Method
from .gaps import Analytic, Clip, Taylor, TopN, Trunc
from .iterations import PI, SVDPI, Exact, NewtonSchulz, SVDNewton
from .pade import Pade, robust_pade
from .polar_iterations import Muon, PolarExpress
from .registry import METHODS, Defaults, methods, named, register_method, resolve, spelling
from .relative_gaps import Lorentzian, Masked
from .root_approximants import MPA, MTP
from .svd_inv import SVDInv

__dir__ = listing(__name__)
__all__ = [
    "METHODS",
    "MPA",
    "MTP",
    "PI",
    "SVDPI",
    "Analytic",
    "Clip",
    "Defaults",
    "Exact",
    "GapMethod",
    "Lorentzian",
    "Masked",
    "Method",
    "Muon",
    "NewtonSchulz",
    "Pade",
    "PolarExpress",
    "SVDInv",
    "SVDNewton",
    "Taylor",
    "TopN",
    "Trunc",
    "methods",
    "named",
    "register_method",
    "resolve",
    "robust_pade",
    "spelling",
]
