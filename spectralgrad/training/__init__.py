"""Training protocols for networks with spectral layers: the hybrid switch and renewed running statistics."""

from .._lazy import export as _export
from .hybrid import *
from .statistics import *

_export(__name__)
