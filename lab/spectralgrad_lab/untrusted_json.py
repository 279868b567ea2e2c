"""JSON that anybody may have written or damaged: checked once, where it is read, before anything relies on it.

A reader takes a value and the place where it stands, and returns the value as the program keeps it.
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
    """Whether a text is of moderate length and without control characters, and UTF-8 can hold it.

    Example:
        >>> printable("svd-taylor λ"), printable(chr(27)), printable(chr(0xD800))
        (True, False, False)
    """
    return len(text) <= LONGEST_TEXT and not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text)


Reader = Callable[[Any, str], Any]
LARGEST = 1e300  # so that sums and axes of numbers from a file stay finite
_DEPTH = 32  # of lists and objects within each other
_INFINITE = {"inf": math.inf, "-inf": -math.inf}


class RowError(SpectralError, ValueError):
    """A value in a file is not of the kind that is expected there."""


def parsed(raw: bytes) -> Any:
    """The value of strict JSON in UTF-8.

    Raises:
        ValueError: it is something else, or nested without end.

    Example:
        >>> parsed(b'{"a": [1, null]}')
        {'a': [1, None]}
        >>> parsed(b"[" * 100_000)
        Traceback (most recent call last):
        ...
        spectralgrad_lab.untrusted_json.RowError: nested too deeply
    """
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_constant)
    except RecursionError:
        raise RowError("nested too deeply") from None
    layer: list[Any] = [value]
    for _ in range(_DEPTH):
        layer = [item for outer in layer for item in _items(outer)]
    if layer:
        raise RowError("nested too deeply")
    return value


def _constant(word: str) -> None:
    raise RowError(f"{word} is not JSON")


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _refused(place: str, wanted: str, value: Any) -> RowError:
    return RowError(f"{place}: expected {wanted}, got {reprlib.repr(value)}")


def whole(low: int = 0, high: int = LARGEST_INT) -> Reader:
    """A whole number in a range.

    Example:
        >>> whole()(3, "step")
        3
        >>> whole()(3.0, "step")
        Traceback (most recent call last):
        ...
        spectralgrad_lab.untrusted_json.RowError: step: expected a whole number from 0 to 9007199254740992, got 3.0
    """

    def read(value: Any, place: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _refused(place, f"a whole number from {low} to {high}", value)
        return value

    return read


def number(low: float = -LARGEST, high: float = LARGEST, infinite: bool = False) -> Reader:
    """A number in a range; None is NaN, and with ``infinite`` the words inf and -inf are what they say.

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
            raise _refused(place, f"a number from {low:g} to {high:g}", value)
        return float(value)

    return read


def words(value: Any, place: str) -> str:
    """Printable text that UTF-8 can hold.

    Example:
        >>> words("the gradient is not finite", "reason")
        'the gradient is not finite'
    """
    if not isinstance(value, str) or not printable(value):
        raise _refused(place, "printable text", value)
    return value


def lines(value: Any, place: str) -> str:
    """The same with line ends and tabs."""
    if isinstance(value, str):
        words(value.replace("\n", " ").replace("\t", " "), place)
        return value
    return words(value, place)


def one_of(*choices: Any) -> Reader:
    """One of these values."""

    def read(value: Any, place: str) -> Any:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise _refused(place, f"one of {', '.join(map(repr, choices))}", value)
        return value

    return read


def maybe(reader: Reader) -> Reader:
    """The same, or None."""
    return lambda value, place: None if value is None else reader(value, place)


def series(reader: Reader) -> Reader:
    """A list.

    Example:
        >>> series(number())([1, None], "times")
        (1.0, nan)
    """

    def read(value: Any, place: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _refused(place, "a list", value)
        return tuple(reader(item, f"{place}[{i}]") for i, item in enumerate(value))

    return read


def table(reader: Reader) -> Reader:
    """An object with any names, all of its values of one kind."""

    def read(value: Any, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _refused(place, "an object", value)
        return {words(name, place): reader(item, f"{place}.{name}") for name, item in value.items()}

    return read


def record(required: Mapping[str, Reader], optional: Mapping[str, Reader] | None = None) -> Reader:
    """An object with these names. Others, which a newer version may have added, are left out.

    Example:
        >>> record({"a": whole()}, {"b": words})({"a": 1, "c": 2}, "row")
        {'a': 1}
    """
    readers = {**required, **(optional or {})}

    def read(value: Any, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _refused(place, "an object", value)
        missing = [name for name in required if name not in value]
        if missing:
            raise RowError(f"{place}: expected {', '.join(missing)}, got none")
        return {name: read(value[name], f"{place}.{name}") for name, read in readers.items() if name in value}

    return read
