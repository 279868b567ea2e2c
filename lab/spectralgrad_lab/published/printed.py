"""Printed tables, read from one TOML file per paper."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@cache
def printed_tables(paper: str) -> dict[str, Any]:
    """The printed tables of a paper, by their name such as ``"table-4"``."""
    with (Path(__file__).parent / f"{paper}.toml").open("rb") as stream:
        return tomllib.load(stream)


def printed_table(paper: str, name: str) -> dict[str, Any]:
    """One printed table: its caption, and its rows as the file has them.

    Args:
        paper: the name of its file, such as ``"eccv"``.
        name: of the table, such as ``"table-5"``.

    Example:
        >>> printed_table("eccv", "table-5")["row"][0]
        {'treatment': 'SVD', 'failures': 5, 'top1': 73.13, 'top5': 91.02}
    """
    table: dict[str, Any] = printed_tables(paper)[name]
    return table
