"""Reads the printed tables of a paper."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAPERS = ("tpami", "neurips", "iccv", "eccv")


@cache
def printed(paper: str) -> dict[str, Any]:
    """The printed tables of a paper, by name.

    Args:
        paper: the name of its file, such as ``"tpami"``.

    Example:
        >>> printed("tpami")["table-4"]["svd-taylor"]["mean"]
        [4.52, 4.55, 4.52, 4.57, 4.5]
    """
    with (Path(__file__).parent / f"{paper}.toml").open("rb") as stream:
        return tomllib.load(stream)


def printed_table(paper: str, name: str) -> dict[str, Any]:
    """One printed table: its caption, and its rows as the file has them.

    Example:
        >>> printed_table("eccv", "table-5")["row"][0]
        {'treatment': 'SVD', 'failures': 5, 'top1': 73.13, 'top5': 91.02}
    """
    table: dict[str, Any] = printed(paper)[name]
    return table
