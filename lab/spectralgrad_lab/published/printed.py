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


@cache
def printed(paper: str) -> dict[str, Any]:
    """The printed tables of a paper, by name.

    Example:
        >>> printed("eccv")["table-5"]["row"][0]
        {'treatment': 'SVD', 'failures': 5, 'top1': 73.13, 'top5': 91.02}
    """
    with (Path(__file__).parent / f"{paper}.toml").open("rb") as stream:
        return tomllib.load(stream)
