"""The forward pass: eigensolvers, the choice between them, and the fallbacks for matrices on which one fails."""

from .call_counts import SolverReport, report, reset_report
from .fused import congruence, inverse_sums, positive_part
from .gradients import eigh_gradient, svd_gradient
from .ladder import eigh_ratio, svd_ratio
from .operators import (
    eigh,
    eigh_at_once,
    eigvalsh,
    function_derivative,
    polar_factors,
    root_and_eigenpairs,
    root_derivative,
    svd,
    svdvals,
)
from .tuning import tune

__all__ = [
    "SolverReport",
    "congruence",
    "eigh",
    "eigh_at_once",
    "eigh_gradient",
    "eigh_ratio",
    "eigvalsh",
    "function_derivative",
    "inverse_sums",
    "polar_factors",
    "positive_part",
    "report",
    "reset_report",
    "root_and_eigenpairs",
    "root_derivative",
    "svd",
    "svd_gradient",
    "svd_ratio",
    "svdvals",
    "tune",
]
