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
