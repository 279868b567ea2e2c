"""The C++ kernel behind a plain C interface, and its loader."""

from .library import Kernel, kernel

__all__ = ["Kernel", "kernel"]
