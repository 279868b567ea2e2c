"""The forward eigensolvers and the ladder they fall back on."""

from .ladder import eigh_ratio, svd_ratio
from .operators import eigh, svd
from .report import SolverReport, report, reset_report

__all__ = ["SolverReport", "eigh", "eigh_ratio", "report", "reset_report", "svd", "svd_ratio"]
