"""Tools that show whether a gradient can be trusted: inspection, a training monitor, conformance and fuzz tests."""

from ..autograd.gauge import GaugeWarning
from .inspection import Inspection, gauge_warnings, inspect
from .monitor import Monitor
from .records import Record
from .smoothness import effective_smoothness

__all__ = [
    "GaugeWarning",
    "Inspection",
    "Monitor",
    "Record",
    "effective_smoothness",
    "gauge_warnings",
    "inspect",
]
