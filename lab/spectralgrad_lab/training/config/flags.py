"""A flag of the command line for every field of a configuration."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Container, Mapping
from dataclasses import Field
from typing import Any

from .settings import Settings
from .values import from_flag, type_names


def add_fields(
    parser: argparse.ArgumentParser, defaults: Settings, titles: Mapping[str, str], leave_out: tuple[str, ...] = ()
) -> None:
    """Add a flag for every field of a configuration; flags that are not given are absent from the namespace.

    Args:
        parser: the parser of a command.
        defaults: the default values that the help text shows.
        titles: the headings of the help text, by the ``group`` of a field.
        leave_out: fields that the command sets in another way.
    """
    for group, title in titles.items():
        section = parser.add_argument_group(title)
        for field in defaults.fields().values():
            if field.metadata["group"] == group and field.name not in leave_out:
                _add(section, field, getattr(defaults, field.name))


def with_flags(problem: Exception, fields: Container[str]) -> str:
    """The message of an error; if it begins with the name of a field, as messages about values do, with its flag.

    Example:
        >>> with_flags(ValueError("warmup_epochs: 3 do not fit"), {"warmup_epochs"})
        '--warmup-epochs: 3 do not fit'
    """
    name, colon, rest = str(problem).partition(":")
    return f"--{name.replace('_', '-')}{colon}{rest}" if name in fields else str(problem)


def _add(section: Any, field: Field[Any], default: Any) -> None:
    flag, choices = f"--{field.name.replace('_', '-')}", field.metadata["choices"]
    text = field.metadata["help"].replace("%", "%%")
    if default is not None and type_names(field) != ["bool"]:
        shown = ",".join(map(str, default)) or "none" if isinstance(default, tuple) else default
        text = f"{text.partition(' (default')[0]} (default: {shown})"
    if type_names(field) == ["bool"]:
        text += f" (default: {'yes' if default else 'no'})"
        section.add_argument(flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text)
        return
    short = {"int": "N", "float": "X", "str": "NAME", "tuple": "N[,N]"}[type_names(field)[-1]]
    metavar = f"{{{','.join(choices)}}}" if choices else field.metadata["metavar"] or short
    section.add_argument(flag, type=_reader(field), default=argparse.SUPPRESS, metavar=metavar, help=text)


def _reader(field: Field[Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return from_flag(field, text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(str(problem)) from None

    return read
