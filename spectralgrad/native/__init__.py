"""The C++ kernel behind a plain C interface, and its loader."""

from .functions import Kernel
from .library import absence, kernel

__all__ = ["Kernel", "absence", "kernel"]
