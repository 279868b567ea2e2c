"""The forward pass: eigensolvers, the choice between them, and the fallbacks for matrices on which one fails."""

from .._lazy import listing
from .batch_invariance import batch_invariant
from .call_counts import SolverReport, report, reset_report
from .decompose.choice import prepared, prepared_svd
from .decompose.fallbacks import eigh_ratio, svd_ratio
from .decompose.operators import (
    eigh,
    eigvalsh,
    function_derivative,
    inverse_root,
    pencil_eigh,
    pencil_eigvalsh,
    polar_factors,
    root_and_eigenpairs,
    root_derivative,
    rotations,
    svd,
    svdvals,
)
from .decompose.tuning import tune
from .kernel.gradients import eigh_gradient, polar_gradient, svd_gradient
from .kernel.roots import inverse_sums, positive_part
from .kernel.scalar_functions import function_and_eigenpairs, scalar_derivative
from .kernel.singular_functions import compose_singular, divided_differences, singular_derivative
from .ties import Ties, groups, singular_groups, split_eigenvalues, split_singular_values

__dir__ = listing(__name__)
__all__ = [
    "SolverReport",
    "Ties",
    "batch_invariant",
    "compose_singular",
    "divided_differences",
    "eigh",
    "eigh_gradient",
    "eigh_ratio",
    "eigvalsh",
    "function_and_eigenpairs",
    "function_derivative",
    "groups",
    "inverse_root",
    "inverse_sums",
    "pencil_eigh",
    "pencil_eigvalsh",
    "polar_factors",
    "polar_gradient",
    "positive_part",
    "prepared",
    "prepared_svd",
    "report",
    "reset_report",
    "root_and_eigenpairs",
    "root_derivative",
    "rotations",
    "scalar_derivative",
    "singular_derivative",
    "singular_groups",
    "split_eigenvalues",
    "split_singular_values",
    "svd",
    "svd_gradient",
    "svd_ratio",
    "svdvals",
    "tune",
]
