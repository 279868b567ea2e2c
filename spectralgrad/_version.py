"""The version, in a file that needs no torch."""

__version__ = "0.1.0"
