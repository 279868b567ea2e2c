"""Differentiable spectral operations for PyTorch.

Gradients are exact where they exist, including at repeated eigenvalues, and bounded where they do not exist.
"""

from typing import TYPE_CHECKING

from . import errors, linalg, solvers
from ._lazy import listing
from .errors import (
    ArgumentError,
    AsymmetricError,
    ConvergenceError,
    IndefiniteError,
    MethodError,
    NonFiniteError,
    NotDefiniteError,
    ShapeError,
    SolverError,
    SpectralError,
)
from .linalg.covariances import covariance, covariance_sqrt
from .linalg.decompositions import eigh, svd
from .linalg.eigenvalues import eigvalsh, svdvals
from .linalg.gaussian_distances import bures_wasserstein, frechet_distance, gaussian_transport, gaussian_wasserstein
from .linalg.large_operators import eigsh
from .linalg.matrix_functions import matrix_exp, matrix_function, matrix_inv_sqrt, matrix_log, matrix_power, matrix_sqrt
from .linalg.norms import nuclear_norm, schatten_norm, spectral_norm
from .linalg.point_sets import procrustes
from .linalg.polar_factor import polar
from .linalg.singular_values import low_rank, singular_value_function, singular_value_threshold
from .linalg.spd_distances import affine_invariant, log_euclidean
from .linalg.subspaces import spectral_projector
from .rescue import override_linalg
from .rules import (
    MPA,
    MTP,
    PI,
    SVDPI,
    Analytic,
    Clip,
    Exact,
    GapMethod,
    Lorentzian,
    Masked,
    Method,
    Muon,
    NewtonSchulz,
    Pade,
    PolarExpress,
    SVDInv,
    SVDNewton,
    Taylor,
    TopN,
    Trunc,
    methods,
    register_method,
)

# These subpackages load when they are first used. Type checkers see ordinary imports: a module-level __getattr__ would
# hide the types and accept misspelt names.
if TYPE_CHECKING:
    from . import diagnostics, nn, optim, training
else:
    from ._lazy import load as __getattr__  # noqa: F401

__version__ = "0.1.0"
__dir__ = listing(__name__)

__all__ = [
    "MPA",
    "MTP",
    "PI",
    "SVDPI",
    "Analytic",
    "ArgumentError",
    "AsymmetricError",
    "Clip",
    "ConvergenceError",
    "Exact",
    "GapMethod",
    "IndefiniteError",
    "Lorentzian",
    "Masked",
    "Method",
    "MethodError",
    "Muon",
    "NewtonSchulz",
    "NonFiniteError",
    "NotDefiniteError",
    "Pade",
    "PolarExpress",
    "SVDInv",
    "SVDNewton",
    "ShapeError",
    "SolverError",
    "SpectralError",
    "Taylor",
    "TopN",
    "Trunc",
    "__version__",
    "affine_invariant",
    "bures_wasserstein",
    "covariance",
    "covariance_sqrt",
    "diagnostics",
    "eigh",
    "eigsh",
    "eigvalsh",
    "errors",
    "frechet_distance",
    "gaussian_transport",
    "gaussian_wasserstein",
    "linalg",
    "log_euclidean",
    "low_rank",
    "matrix_exp",
    "matrix_function",
    "matrix_inv_sqrt",
    "matrix_log",
    "matrix_power",
    "matrix_sqrt",
    "methods",
    "nn",
    "nuclear_norm",
    "optim",
    "override_linalg",
    "polar",
    "procrustes",
    "register_method",
    "schatten_norm",
    "singular_value_function",
    "singular_value_threshold",
    "solvers",
    "spectral_norm",
    "spectral_projector",
    "svd",
    "svdvals",
    "training",
]
