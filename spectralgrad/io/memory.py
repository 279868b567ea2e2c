"""Errors that mean that memory has run out: Python's, torch's for a GPU, and torch's text for a CPU."""

from __future__ import annotations

import re

# torch raises a plain RuntimeError on a CPU; the third is C++'s.
_SIGNS = ("can't allocate memory", "not enough memory", "std::bad_alloc")
_SIZE = re.compile(r"(?:ried|nable) to allocate ([\d.]+) (\w+)")


def out_of_memory(problem: BaseException) -> str:
    """Return one line that says that memory has run out, or an empty text if ``problem`` means something else.

    Example:
        >>> out_of_memory(RuntimeError("can't allocate memory: you tried to allocate 8000000 bytes. Error code 12"))
        'out of memory: could not allocate 8000000 bytes'
        >>> out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
        ''
    """
    text = str(problem)
    known = isinstance(problem, MemoryError) or type(problem).__name__ == "OutOfMemoryError"
    if not known and not any(sign in text for sign in _SIGNS):
        return ""
    size = _SIZE.search(text)
    return f"out of memory: could not allocate {size[1]} {size[2]}" if size else "out of memory"
