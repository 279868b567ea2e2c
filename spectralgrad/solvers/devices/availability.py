"""Whether Triton is installed."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

__all__ = ["missing"]


@cache
def missing() -> str:
    """Return why the Triton kernels are not available, or an empty string. Triton itself is not imported."""
    if find_spec("triton") is None:
        return "Triton is not installed; it comes with torch's builds for CUDA and ROCm on Linux"
    return ""
