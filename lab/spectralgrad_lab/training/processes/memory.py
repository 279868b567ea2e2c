"""Keep the memory of large tensors between steps.

When a block of several megabytes is freed, glibc returns it to the kernel. A training step on a CPU frees and allocates
such blocks all the time, and the kernel clears each new one page by page: adding two activations of 33 MB then takes
several times as long as the arithmetic.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_LARGE = 2**30


def keep_memory() -> bool:
    """Ask glibc to keep freed blocks of up to a gigabyte for this process; True if it agreed.

    With other C libraries (musl, macOS) this does nothing.

    Example:
        >>> keep_memory() in (True, False)
        True
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGE)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))
