"""Read JSON that may be damaged or malicious: everything is checked once, when it is read.

A reader takes a value and its place in the file, for messages, and returns the checked value.
"""

from __future__ import annotations

import json
import math
import reprlib
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spectralgrad.errors import SpectralError

LARGEST_INT = 2**53  # a float holds every whole number up to it
LONGEST_TEXT = 4096  # characters


def printable(text: str) -> bool:
    """True if a text is not too long, has no control characters and can be encoded as UTF-8.

    Example:
        >>> printable("svd-taylor λ"), printable(chr(27)), printable(chr(0xD800))
        (True, False, False)
    """
    return len(text) <= LONGEST_TEXT and not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text)


Reader = Callable[[Any, str], Any]
LARGEST = 1e300  # so that sums of numbers from a file do not overflow
_DEPTH = 32  # of nested lists and objects
_INFINITE = {"inf": math.inf, "-inf": -math.inf}


class InvalidValueError(SpectralError, ValueError):
    """A value in a file is not what is expected there."""


def parse(raw: bytes) -> Any:
    """Parse strict JSON in UTF-8.

    Raises:
        ValueError: it is invalid or nested too deeply.

    Example:
        >>> parse(b'{"a": [1, null]}')
        {'a': [1, None]}
        >>> parse(b"[" * 100_000)
        Traceback (most recent call last):
        ...
        spectralgrad_lab.untrusted_json.InvalidValueError: nested too deeply
    """
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_constant)
    except RecursionError:
        raise InvalidValueError("nested too deeply") from None
    layer: list[Any] = [value]
    for _ in range(_DEPTH):
        layer = [item for outer in layer for item in _items(outer)]
    if layer:
        raise InvalidValueError("nested too deeply")
    return value


def _constant(word: str) -> None:
    raise InvalidValueError(f"{word} is not JSON")


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _unexpected(place: str, wanted: str, value: Any) -> InvalidValueError:
    return InvalidValueError(f"{place}: expected {wanted}, got {reprlib.repr(value)}")


def integer(low: int = 0, high: int = LARGEST_INT) -> Reader:
    """Reader of a whole number in a range.

    Example:
        >>> integer()(3, "step")
        3
        >>> integer(0, 9)(3.0, "step")
        Traceback (most recent call last):
        ...
        spectralgrad_lab.untrusted_json.InvalidValueError: step: expected a whole number from 0 to 9, got 3.0
    """

    def read(value: Any, place: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _unexpected(place, f"a whole number from {low} to {high}", value)
        return value

    return read


def number(low: float = -LARGEST, high: float = LARGEST, infinite: bool = False) -> Reader:
    """Reader of a number in a range; None is read as NaN and, with ``infinite``, "inf" and "-inf" as infinities.

    Example:
        >>> number()(None, "loss"), number(infinite=True)("-inf", "loss"), number(0, 100)(7, "error")
        (nan, -inf, 7.0)
    """

    def read(value: Any, place: str) -> float:
        if value is None:
            return math.nan
        if infinite and isinstance(value, str) and value in _INFINITE:
            return _INFINITE[value]
        if type(value) not in (int, float) or not low <= value <= high:
            raise _unexpected(place, f"a number from {low:g} to {high:g}", value)
        return float(value)

    return read


def text(value: Any, place: str) -> str:
    """Read printable text; see :func:`printable`.

    Example:
        >>> text("the gradient is not finite", "reason")
        'the gradient is not finite'
    """
    if not isinstance(value, str) or not printable(value):
        raise _unexpected(place, "printable text", value)
    return value


def multiline_text(value: Any, place: str) -> str:
    """Read printable text with newlines and tabs."""
    if isinstance(value, str):
        text(value.replace("\n", " ").replace("\t", " "), place)
        return value
    return text(value, place)


def one_of(*choices: Any) -> Reader:
    """Reader of one of these values."""

    def read(value: Any, place: str) -> Any:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise _unexpected(place, f"one of {', '.join(map(repr, choices))}", value)
        return value

    return read


def optional(reader: Reader) -> Reader:
    """Reader that also accepts None."""
    return lambda value, place: None if value is None else reader(value, place)


def list_of(reader: Reader) -> Reader:
    """Reader of a list.

    Example:
        >>> list_of(number())([1, None], "times")
        (1.0, nan)
    """

    def read(value: Any, place: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _unexpected(place, "a list", value)
        return tuple(reader(item, f"{place}[{i}]") for i, item in enumerate(value))

    return read


def mapping_of(reader: Reader) -> Reader:
    """Reader of an object with arbitrary names, whose values all have the same reader."""

    def read(value: Any, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _unexpected(place, "an object", value)
        return {text(name, place): reader(item, f"{place}.{name}") for name, item in value.items()}

    return read


def record(required: Mapping[str, Reader], optional: Mapping[str, Reader] | None = None) -> Reader:
    """Reader of an object with these names. Other names, which a newer version may have added, are ignored.

    Example:
        >>> record({"a": integer()}, {"b": text})({"a": 1, "c": 2}, "row")
        {'a': 1}
    """
    readers = {**required, **(optional or {})}

    def read(value: Any, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _unexpected(place, "an object", value)
        missing = [name for name in required if name not in value]
        if missing:
            raise InvalidValueError(f"{place}: expected {', '.join(missing)}, got none")
        return {name: read(value[name], f"{place}.{name}") for name, read in readers.items() if name in value}

    return read
