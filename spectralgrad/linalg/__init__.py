"""The public functions: decompositions, matrix functions, rotations, singular values, covariances, distances."""

from .._lazy import listing
from ..autograd.iterations.newton_schulz import LyapunovResult
from .covariances import covariance, covariance_sqrt
from .decompositions import EighResult, SVDResult, eigh, svd
from .eigenvalues import eigvalsh, svdvals
from .gaussian_distances import bures_wasserstein, frechet_distance, gaussian_transport, gaussian_wasserstein
from .large_operators import eigsh
from .lyapunov_equation import lyapunov
from .matrix_functions import matrix_exp, matrix_function, matrix_inv_sqrt, matrix_log, matrix_power, matrix_sqrt
from .matrix_iterations import newton_schulz
from .norms import nuclear_norm, schatten_norm, spectral_norm
from .point_sets import ProcrustesResult, procrustes
from .polar_factor import polar
from .singular_values import low_rank, singular_value_function, singular_value_threshold
from .spd_distances import affine_invariant, log_euclidean
from .subspaces import spectral_projector

__dir__ = listing(__name__)
__all__ = [
    "EighResult",
    "LyapunovResult",
    "ProcrustesResult",
    "SVDResult",
    "affine_invariant",
    "bures_wasserstein",
    "covariance",
    "covariance_sqrt",
    "eigh",
    "eigsh",
    "eigvalsh",
    "frechet_distance",
    "gaussian_transport",
    "gaussian_wasserstein",
    "log_euclidean",
    "low_rank",
    "lyapunov",
    "matrix_exp",
    "matrix_function",
    "matrix_inv_sqrt",
    "matrix_log",
    "matrix_power",
    "matrix_sqrt",
    "newton_schulz",
    "nuclear_norm",
    "polar",
    "procrustes",
    "schatten_norm",
    "singular_value_function",
    "singular_value_threshold",
    "spectral_norm",
    "spectral_projector",
    "svd",
    "svdvals",
]
