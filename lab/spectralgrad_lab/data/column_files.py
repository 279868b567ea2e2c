"""Text files with columns, in which datasets list their images."""

from __future__ import annotations

from pathlib import Path

from .errors import DataError, require_file


def rows(path: Path, columns: int, source: str) -> list[list[str]]:
    """Read the rows of a text file, split at white space into ``columns``; the last column takes the rest.

    Raises:
        DataError: the file is missing, empty, not text, or has a shorter row.
    """
    try:
        lines = require_file(path, source).read_text("utf-8").splitlines()
    except UnicodeDecodeError as problem:
        raise DataError(f"not a text file ({problem})", path=path, source=source) from problem
    table = [line.split(None, columns - 1) for line in lines if line.strip()]
    if not table:
        raise DataError("empty file", path=path, source=source)
    for number, row in enumerate(table, 1):
        if len(row) < columns:
            short = f"expected {columns} columns in row {number}, got {len(row)}"
            raise DataError(short, path=path, source=source)
    return table


def key_values(path: Path, source: str) -> dict[str, str]:
    """Read a file with two columns as key → value."""
    return {key: value.strip() for key, value in rows(path, 2, source)}
