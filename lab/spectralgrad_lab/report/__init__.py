"""The report of a comparison: one HTML file with everything in it."""

from .page import PAGE, Page, report
from .provenance import SESSION, session

__all__ = ["PAGE", "SESSION", "Page", "report", "session"]
