"""The doctor: which call makes a gradient non-finite or wrong, where it is, and what to write instead."""

from .findings import Finding
from .report import Report
from .visit import doctor

__all__ = ["Finding", "Report", "doctor"]
