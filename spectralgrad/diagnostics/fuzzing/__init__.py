"""Random matrices of difficult kinds through every operation and method: the fuzz test and its command."""

from .campaign import Campaign, Tally
from .cases import Case, draw
from .families import FAMILIES
from .operations import OPERATIONS

__all__ = ["FAMILIES", "OPERATIONS", "Campaign", "Case", "Tally", "draw"]
