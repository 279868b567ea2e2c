"""The papers' experiments: data, networks, a trainer with records that survive anything, and comparisons."""

from . import data, networks
from .comparison.grid import compare, grid
from .comparison.paired_differences import against
from .comparison.results import ResultsFile, summarize
from .training.config.presets import PRESETS
from .training.config.run_config import Config
from .training.loop.run import train
from .training.storage.records import Epoch, Failure, Result

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
