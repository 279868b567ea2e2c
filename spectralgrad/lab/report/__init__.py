"""The report of a comparison: one HTML file with everything in it."""

from .page import PAGE, SESSION, Page, report

__all__ = ["PAGE", "SESSION", "Page", "report"]
