"""The papers' experiments: data, networks, a trainer with records that survive anything, and comparisons."""

from . import data, networks
from .comparison.grid import compare, grid
from .comparison.paired_differences import against
from .comparison.results import ResultsFile, summarize
from .training.config import Config
from .training.presets import PRESETS
from .training.records import Epoch, Failure, Result
from .training.run import train

__version__ = "0.1.0"

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
    "summarize",
    "train",
]
