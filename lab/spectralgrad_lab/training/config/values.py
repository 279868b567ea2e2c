"""Check one value of a configuration: its type, its range, its choices; and read it from the text of a flag."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from spectralgrad.io.text_values import DESCRIPTIONS, from_text

from ...untrusted_json import LARGEST_INT, LONGEST_TEXT, printable


def type_names(field: dataclasses.Field[Any]) -> list[str]:
    """The names of the types that a field accepts, without None.

    Example:
        >>> from spectralgrad_lab.training.config.run_config import FIELDS
        >>> type_names(FIELDS["train_size"]), type_names(FIELDS["milestones"])
        (['int'], ['tuple'])
    """
    said = field.type.__name__ if isinstance(field.type, type) else str(field.type)
    words = [word.strip() for word in said.split("|")]
    return ["tuple" if word.startswith("tuple") else word for word in words if word not in ("None", "Method")]


def check(field: dataclasses.Field[Any], value: Any) -> Any:
    """The value as the field stores it.

    Raises:
        ValueError: the value is invalid; the message says what was expected.
    """
    if value is None or _means_none(field, value):
        if "None" in str(field.type):
            return None
        raise ValueError(f"expected {_description(field)}, got nothing")
    if type_names(field) == ["tuple"]:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"expected a list of whole numbers, got {value!r}")
        return tuple(_in_range(field, _of_type(item, ["int"], field)) for item in value)
    return _in_range(field, _of_type(value, type_names(field), field))


def _means_none(field: dataclasses.Field[Any], value: Any) -> bool:
    """TOML has no None, so an optional number may be given as the word ``none``."""
    if not isinstance(value, str) or value.lower() != "none":
        return False
    return "None" in str(field.type) and "str" not in type_names(field)


def _of_type(value: Any, wanted: list[str], field: dataclasses.Field[Any]) -> Any:
    if isinstance(value, int) and abs(value) > LARGEST_INT:
        raise ValueError(f"expected {_description(field)} of at most {LARGEST_INT}, got a larger one")
    if isinstance(value, int) and not isinstance(value, bool) and "float" in wanted and "int" not in wanted:
        value = float(value)
    if (str if isinstance(value, str) else type(value)).__name__ not in wanted:
        raise ValueError(f"expected {_description(field)}, got {value!r}")
    if isinstance(value, str) and not printable(value):
        raise ValueError(f"expected printable text of at most {LONGEST_TEXT} characters, got {value[:80]!r}")
    return value


def _in_range(field: dataclasses.Field[Any], value: Any) -> Any:
    choices, minimum = field.metadata["choices"], field.metadata["minimum"]
    if choices and value not in choices:
        raise ValueError(f"expected one of {', '.join(choices)}, got {value!r}")
    if minimum is not None and not (minimum <= value < math.inf):
        raise ValueError(f"expected {_description(field)} ≥ {minimum:g}, got {value!r}")
    return value


def _description(field: dataclasses.Field[Any]) -> str:
    return " or ".join(DESCRIPTIONS.get(kind, "whole numbers") for kind in type_names(field))


def from_flag(field: dataclasses.Field[Any], text: str) -> Any:
    """The value of a flag's text; ``none`` means None where the field allows it.

    Example:
        >>> from spectralgrad_lab.training.config.run_config import FIELDS
        >>> from_flag(FIELDS["milestones"], "30,45"), from_flag(FIELDS["keep"], "16"), from_flag(FIELDS["keep"], "0.9")
        ((30, 45), 16, 0.9)
        >>> from_flag(FIELDS["group_size"], "none") is None, from_flag(FIELDS["milestones"], "none")
        (True, ())
    """
    if not text.strip() and type_names(field) != ["tuple"]:
        raise ValueError(f"expected {_description(field)}, got an empty text")
    if text.lower() == "none" and "None" in str(field.type) and "none" not in field.metadata["choices"]:
        return None
    return check(field, _read(text, type_names(field)))


def _read(text: str, types: list[str]) -> Any:
    """A value of the first type that can read the text; otherwise the text itself, which :func:`check` refuses."""
    if types == ["tuple"]:
        parts = [] if text.lower() == "none" else text.split(",")
        return tuple(_read(part, ["int"]) for part in parts if part.strip())
    try:
        return from_text(text, types)
    except ValueError:
        return text


def toml_value(value: Any) -> str:
    """A value in TOML. A JSON string is a valid TOML string unless it contains escaped surrogate pairs.

    Example:
        >>> toml_value((30, 45)), toml_value("svd")
        ('[30, 45]', '"svd"')
    """
    if isinstance(value, tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
