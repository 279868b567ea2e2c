"""The forward pass: eigensolvers, the choice between them, and the fallbacks for matrices on which one fails."""

from .._lazy import listing
from .at_once import eigh as eigh_at_once
from .at_once import eigvalsh as eigvalsh_at_once
from .at_once import prepared, prepared_svd
from .at_once import root_and_eigenpairs as root_at_once
from .at_once import root_derivative as root_derivative_at_once
from .at_once import svd as svd_at_once
from .batch_invariance import batch_invariant
from .call_counts import SolverReport, report, reset_report
from .fused import congruence, inverse_sums, positive_part
from .gradients import eigh_gradient, polar_gradient, svd_gradient
from .ladder import eigh_ratio, svd_ratio
from .operators import (
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
from .ties import Ties, groups, singular_groups, split_eigenvalues, split_singular_values
from .tuning import tune
from .value_functions import compose_singular, divided_differences, singular_derivative

__dir__ = listing(__name__)
__all__ = [
    "SolverReport",
    "Ties",
    "batch_invariant",
    "compose_singular",
    "congruence",
    "divided_differences",
    "eigh",
    "eigh_at_once",
    "eigh_gradient",
    "eigh_ratio",
    "eigvalsh",
    "eigvalsh_at_once",
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
    "root_at_once",
    "root_derivative",
    "root_derivative_at_once",
    "rotations",
    "singular_derivative",
    "singular_groups",
    "split_eigenvalues",
    "split_singular_values",
    "svd",
    "svd_at_once",
    "svd_gradient",
    "svd_ratio",
    "svdvals",
    "tune",
]
