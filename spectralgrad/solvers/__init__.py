"""The forward eigensolvers and the ladder they fall back on."""

from .ladder import eigh_ratio, svd_ratio
from .operators import eigh, polar_factors, root, root_derivative, svd, weighted
from .positive import positive_part
from .statistics import SolverReport, report, reset_report
from .tuning import tune

__all__ = [
    "SolverReport",
    "eigh",
    "eigh_ratio",
    "polar_factors",
    "positive_part",
    "report",
    "reset_report",
    "root",
    "root_derivative",
    "svd",
    "svd_ratio",
    "tune",
    "weighted",
]
