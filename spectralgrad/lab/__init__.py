"""The papers' experiments: data, networks, a trainer with records that survive anything, and comparisons."""

from . import data, networks
from .compare import compare, grid
from .config import Config
from .pairs import against
from .presets import PRESETS
from .records import Epoch, Failure, Result
from .results import ResultsFile, summarise
from .training import train

__all__ = [
    "PRESETS",
    "Config",
    "Epoch",
    "Failure",
    "Result",
    "ResultsFile",
    "against",
    "compare",
    "data",
    "grid",
    "networks",
    "summarise",
    "train",
]
