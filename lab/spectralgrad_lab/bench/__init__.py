"""Speed of this library compared with torch.linalg, plain autograd, Newton–Schulz and other libraries."""

from .cases import Case, features, grid, matrices, sweep, wide
from .contests import Contest, Contestant, Entry, Outcome, hold, run
from .report import as_json, as_table
from .timing import Timing, race

__all__ = [
    "Case",
    "Contest",
    "Contestant",
    "Entry",
    "Outcome",
    "Timing",
    "as_json",
    "as_table",
    "features",
    "grid",
    "hold",
    "matrices",
    "race",
    "run",
    "sweep",
    "wide",
]
