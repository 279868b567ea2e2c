"""The papers' experiments: data, networks, and what trains and compares them."""

from . import data, networks

__all__ = ["data", "networks"]
