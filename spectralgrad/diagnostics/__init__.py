"""Tools that show whether a gradient can be trusted: inspection, a training monitor, conformance and fuzz tests."""

from .._lazy import listing
from ._doctor import Finding, Report, doctor
from .inspection import Inspection, inspect
from .monitor import Monitor
from .records import Record
from .smoothness import effective_smoothness
from .tie_warnings import GaugeWarning, gauge_warnings

__dir__ = listing(__name__)
__all__ = [
    "Finding",
    "GaugeWarning",
    "Inspection",
    "Monitor",
    "Record",
    "Report",
    "doctor",
    "effective_smoothness",
    "gauge_warnings",
    "inspect",
]
