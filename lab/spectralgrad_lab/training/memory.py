"""Memory of large tensors is kept between steps.

glibc gives blocks above some megabytes back to the kernel whenever they are freed. A training step on a CPU frees and
asks for such blocks all the time, and each new one is cleared page by page: an addition of two activations of 33 MB
then takes several times as long as its arithmetic.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_LARGE = 2**30


def keep_memory() -> bool:
    """Ask glibc to keep freed memory, up to a gigabyte a block, for this process. Whether it agreed.

    Elsewhere (musl, macOS) nothing happens.

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
