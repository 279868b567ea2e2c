"""Parses method strings such as ``svd-taylor`` or ``svd-taylor:degree=19``."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from ..errors import MethodError
from ..io.text_values import DESCRIPTIONS, from_text
from .base import Method, parameters


def parse(text: str, known: dict[str, type[Method]], defaults: Mapping[str, Any] | None = None) -> Method:
    """Return the method described by a string: a name, optionally followed by ``:parameter=value`` pairs.

    Args:
        text: for example ``"svd-clip:threshold=10:relative=true"``.
        known: the methods by name.
        defaults: values of parameters that the string leaves open, instead of the method's own.

    Raises:
        MethodError: there is no such method or parameter, or the value is invalid.
    """
    name, *settings = text.split(":")
    if name not in known:
        close = get_close_matches(name.lower().replace("_", "-").replace(" ", "-"), known, n=1, cutoff=0.75)
        hint = f". Did you mean {close[0]!r}?" if close else ""
        raise MethodError(f"unknown method {name!r}; choose from: {', '.join(known)}{hint}")
    fields = parameters(known[name])
    values: dict[str, Any] = dict(defaults or {})
    for setting in settings:
        key, equals, value = setting.partition("=")
        if key not in fields or not equals:
            wanted = ", ".join(f"{field.name}={field.default}" for field in fields.values())
            offered = f"its parameters and their defaults are {wanted}" if wanted else "it has no parameters"
            raise MethodError(f"method {text!r}: expected {name}:PARAMETER=VALUE, got {setting!r}; {offered}")
        values[key] = _value(value, _kind(fields[key].type), f"method {text!r}: expected {key} to be")
    return known[name](**values)


def _kind(annotation: Any) -> str:
    """Return the name of a field's type; the annotation is a string where annotations are not evaluated."""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _value(text: str, kind: str, expected: str) -> Any:
    kinds = [word.strip() for word in kind.split("|")]
    if kind.startswith("Literal"):
        return text  # the method itself checks it
    if "None" in kinds and text.lower() == "none":
        return None
    try:
        return from_text(text, kinds[:1])
    except ValueError:
        raise MethodError(f"{expected} {DESCRIPTIONS.get(kinds[0], kinds[0])}, got {text!r}") from None
