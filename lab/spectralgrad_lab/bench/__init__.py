"""Speed of this library compared with torch.linalg, plain autograd, Newton–Schulz, JAX and other libraries."""

from .cases import Case, matrices
from .comparisons import run
from .every_contestant import details
from .outcomes import Contest, Contestant, Entry, Outcome, hold
from .stored_outcomes import as_json
from .table import as_table
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
    "details",
    "hold",
    "matrices",
    "race",
    "run",
]
