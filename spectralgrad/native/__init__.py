"""The C++ kernel behind a plain C interface, and its loader."""

from .library import Kernel, absence, kernel

__all__ = ["Kernel", "absence", "kernel"]
