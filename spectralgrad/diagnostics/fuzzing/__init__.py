"""Fuzz tests: every operation and method on random matrices of difficult kinds, and the command that runs them."""

from .campaign import Campaign, Tally
from .cases import Case, draw
from .families import FAMILIES
from .operations import OPERATIONS

__all__ = ["FAMILIES", "OPERATIONS", "Campaign", "Case", "Tally", "draw"]
