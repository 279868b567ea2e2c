"""The public functions: decompositions, matrix functions, the polar factor, covariances and two iterations."""

from ..autograd.newton_schulz import LyapunovResult, lyapunov, newton_schulz
from .covariances import covariance, covariance_sqrt
from .decompositions import EighResult, SVDResult, eigh, svd
from .eigenvalues import eigvalsh, svdvals
from .large_operators import eigsh
from .matrix_functions import (
    matrix_exp,
    matrix_function,
    matrix_inv_sqrt,
    matrix_log,
    matrix_power,
    matrix_sqrt,
)
from .polar_factor import polar
from .subspaces import spectral_projector

__all__ = [
    "EighResult",
    "LyapunovResult",
    "SVDResult",
    "covariance",
    "covariance_sqrt",
    "eigh",
    "eigsh",
    "eigvalsh",
    "lyapunov",
    "matrix_exp",
    "matrix_function",
    "matrix_inv_sqrt",
    "matrix_log",
    "matrix_power",
    "matrix_sqrt",
    "newton_schulz",
    "polar",
    "spectral_projector",
    "svd",
    "svdvals",
]
