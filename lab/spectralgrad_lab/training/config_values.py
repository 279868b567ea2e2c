"""One value of a configuration: of the right kind, in its range, one of the choices; and the same from a flag."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from spectralgrad.io.text_values import DESCRIPTIONS, from_text

from ..untrusted_json import LARGEST_INT, LONGEST_TEXT, printable


def kinds(field: dataclasses.Field[Any]) -> list[str]:
    """The names of the types a field takes, without None.

    Example:
        >>> from spectralgrad_lab.training.config import FIELDS
        >>> kinds(FIELDS["train_size"]), kinds(FIELDS["milestones"])
        (['int'], ['tuple'])
    """
    words = [word.strip() for word in str(field.type).split("|")]
    return ["tuple" if word.startswith("tuple") else word for word in words if word not in ("None", "Method")]


def check(field: dataclasses.Field[Any], value: Any) -> Any:
    """The value as the field keeps it.

    Raises:
        ValueError: it does not fit; the message says what was expected.
    """
    if value is None or _means_none(field, value):
        if "None" in str(field.type):
            return None
        raise ValueError(f"expected {_wanted(field)}, got nothing")
    if kinds(field) == ["tuple"]:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"expected a list of whole numbers, got {value!r}")
        return tuple(_in_range(field, _of_kind(item, ["int"], field)) for item in value)
    return _in_range(field, _of_kind(value, kinds(field), field))


def _means_none(field: dataclasses.Field[Any], value: Any) -> bool:
    """TOML has no None, so a number that may be missing is written as a word."""
    return (
        isinstance(value, str) and value.lower() == "none" and "None" in str(field.type) and "str" not in kinds(field)
    )


def _of_kind(value: Any, wanted: list[str], field: dataclasses.Field[Any]) -> Any:
    if isinstance(value, int) and abs(value) > LARGEST_INT:
        raise ValueError(f"expected {_wanted(field)} of at most {LARGEST_INT}, got a larger one")
    if isinstance(value, int) and not isinstance(value, bool) and "float" in wanted and "int" not in wanted:
        value = float(value)
    if type(value).__name__ not in wanted:
        raise ValueError(f"expected {_wanted(field)}, got {value!r}")
    if isinstance(value, str) and not printable(value):
        raise ValueError(f"expected printable text of at most {LONGEST_TEXT} characters, got {value[:80]!r}")
    return value


def _in_range(field: dataclasses.Field[Any], value: Any) -> Any:
    choices, least = field.metadata["choices"], field.metadata["least"]
    if choices and value not in choices:
        raise ValueError(f"expected one of {', '.join(choices)}, got {value!r}")
    if least is not None and not (least <= value < math.inf):
        raise ValueError(f"expected {_wanted(field)} ≥ {least:g}, got {value!r}")
    return value


def _wanted(field: dataclasses.Field[Any]) -> str:
    return " or ".join(DESCRIPTIONS.get(kind, "whole numbers") for kind in kinds(field))


def parsed(field: dataclasses.Field[Any], text: str) -> Any:
    """The value that a flag's text means; ``none`` stands for None where a field has it.

    Example:
        >>> from spectralgrad_lab.training.config import FIELDS
        >>> parsed(FIELDS["milestones"], "30,45"), parsed(FIELDS["keep"], "16"), parsed(FIELDS["keep"], "0.9")
        ((30, 45), 16, 0.9)
        >>> parsed(FIELDS["group_size"], "none") is None, parsed(FIELDS["milestones"], "none")
        (True, ())
    """
    if text.lower() == "none" and "None" in str(field.type) and "none" not in field.metadata["choices"]:
        return None
    return check(field, _read(text, kinds(field)))


def _read(text: str, types: list[str]) -> Any:
    """A value of the first type that can read the text; otherwise the text itself, which :func:`check` refuses."""
    if types == ["tuple"]:
        parts = [] if text.lower() == "none" else text.split(",")
        return tuple(_read(part, ["int"]) for part in parts if part.strip())
    try:
        return from_text(text, types)
    except ValueError:
        return text
