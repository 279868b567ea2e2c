"""The report of a comparison: one HTML file with everything in it."""

from .provenance import SESSION, session
from .page import PAGE, Page, report

__all__ = ["PAGE", "SESSION", "Page", "report", "session"]
