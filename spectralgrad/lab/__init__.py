"""The papers' experiments: data, networks, and what trains and compares them."""

from . import data

__all__ = ["data"]
