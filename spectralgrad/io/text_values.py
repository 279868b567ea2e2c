"""Parses numbers and booleans from text, for command-line flags and method names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

# How error messages describe a type.
DESCRIPTIONS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}
_READERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "bool": lambda word: {"true": True, "false": False}[word.lower()],
    "str": str,
}


def from_text(text: str, types: Iterable[str]) -> Any:
    """Convert text to the first of several types that accepts it.

    Args:
        text: the text.
        types: names among ``int``, ``float``, ``bool`` and ``str``, in order of preference.

    Raises:
        ValueError: none of the types accepts the text.

    Example:
        >>> from_text("16", ["int", "float"]), from_text("0.9", ["int", "float"]), from_text("True", ["bool"])
        (16, 0.9, True)
    """
    for name in types:
        try:
            return _READERS[name](text)
        except (ValueError, KeyError):
            continue
    raise ValueError(f"expected {' or '.join(DESCRIPTIONS.get(name, name) for name in types)}, got {text!r}")
