"""The papers' experiments: data, networks, a trainer with records that survive anything, and comparisons."""

from . import data, networks
from .config import Config
from .presets import PRESETS
from .records import Epoch, Failure, Result
from .training import train

__all__ = ["PRESETS", "Config", "Epoch", "Failure", "Result", "data", "networks", "train"]
