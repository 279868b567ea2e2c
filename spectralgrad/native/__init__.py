"""The C++ kernel behind a plain C interface, and its loader."""

from .functions import Kernel
from .library import absence, kernel, mention_absence

__all__ = ["Kernel", "absence", "kernel"]

mention_absence()
