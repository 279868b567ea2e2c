"""The doctor: which call makes a gradient non-finite or wrong, where it is, and what to write instead."""

from .findings import Finding
from .report import Report
from .session import doctor

__all__ = ["Finding", "Report", "doctor"]
