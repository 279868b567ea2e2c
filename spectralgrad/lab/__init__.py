"""The papers' experiments: data, networks, a trainer with records that survive anything, and comparisons."""

from . import data

__all__ = ["data"]
