"""The names on the page ``docs/api.md``, from the files that define them. A hook of mkdocs, which the tests call too.

A line ``::: spectralgrad.nn.* from nn/base, nn/*`` becomes one line ``::: spectralgrad.nn.NAME`` for each name in the
``__all__`` of these files. A pattern leaves out the names that the page has already.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent.parent / "spectralgrad"
_LINE = re.compile(r"^::: ([\w.]+)\.\* from (.+)$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs with the text of each page."""
    return expanded(markdown) if page.file.src_uri == "api.md" else markdown


def expanded(page: str) -> str:
    """The page with a line for each name.

    Example:
        >>> print(expanded("::: spectralgrad.* from linalg/norms"))
        ::: spectralgrad.nuclear_norm
        ::: spectralgrad.schatten_norm
        ::: spectralgrad.spectral_norm
    """
    listed = set(re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE))

    def lines(match: re.Match[str]) -> str:
        names = dict.fromkeys(f"{match[1]}.{name}" for pattern in match[2].split(", ") for name in public(pattern))
        new = [name for name in names if name not in listed]
        listed.update(new)
        return "\n".join(f"::: {name}" for name in new)

    return _LINE.sub(lines, page)


def public(pattern: str) -> Iterator[str]:
    """The names in the ``__all__`` of the package's files whose paths have the pattern, in the order of the files.

    Raises:
        ValueError: there is no such file.
    """
    files = sorted(PACKAGE.glob(f"{pattern}.py"))
    if not files:
        raise ValueError(f"docs/api.md: expected files of spectralgrad, got {pattern!r}")
    for file in files:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                yield from ast.literal_eval(node.value)
