"""Say whether a gradient can be trusted."""

from ..gauge import GaugeWarning
from .inspection import Inspection, gauge_warnings, inspect

__all__ = ["GaugeWarning", "Inspection", "gauge_warnings", "inspect"]
