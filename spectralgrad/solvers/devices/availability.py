"""Whether the Triton kernels are used on a device."""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib.util import find_spec

import torch

from . import selftest

__all__ = ["missing", "state"]

BACKENDS = ("cuda",)  # ROCm has this name too
# Read once, as by the CPU kernel's own switch: every call asks.
switched_off: bool = os.environ.get("SPECTRALGRAD_TRITON") == "0"
_outcomes: dict[torch.device, str] = {}


@cache
def missing() -> str:
    """Return why the Triton kernels are not available, or an empty string. Triton itself is not imported."""
    if find_spec("triton") is None:
        return "Triton is not installed; it comes with torch's builds for CUDA and ROCm on Linux"
    return ""


def state(device: torch.device | str) -> str:
    """Return why the Triton kernels are not used on a device, or an empty string if they are.

    The first call for a device tests them there, which compiles them and reads one number. To switch them off, set
    SPECTRALGRAD_TRITON=0 in the environment before the process starts.

    Example:
        >>> state("cpu")
        'there are none for devices of type cpu'
    """
    device = torch.device(device)
    known = _outcomes.get(device)
    return _found(device) if known is None else known


def _found(device: torch.device) -> str:
    if device.type not in BACKENDS:
        return f"there are none for devices of type {device.type}"
    if device.type == "cuda" and not torch.cuda.is_available():
        return "torch finds no device of this type"
    if switched_off:
        return "switched off by SPECTRALGRAD_TRITON=0"
    if missing():
        return missing()
    if device.type == "cuda":
        if device.index is None:
            return state(torch.device("cuda", torch.cuda.current_device()))
        if torch.cuda.is_current_stream_capturing():
            return "not tested yet, which is impossible while a CUDA graph is recorded"
    _outcomes[device] = wrong = _tested(device)
    if wrong:
        warnings.warn(
            f"Triton kernels are not used on {device}: {wrong}. torch.linalg is used instead; please report this.",
            RuntimeWarning,
            stacklevel=3,
        )
    return wrong


def _tested(device: torch.device) -> str:
    try:
        wrong = selftest.failures(device)
    except Exception as problem:  # of any kind: compilers and drivers have their own
        return f"the self-test stopped with {type(problem).__name__}: {str(problem).strip()[:200]}"
    return f"the self-test failed for {', '.join(wrong)}" if wrong else ""
