"""A log of JSON lines, each with the step at which it was written; a resumed run writes nothing twice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spectralgrad.io.files import write_text

from .records import json_ready


class StepLog:
    """A file of JSON lines.

    Args:
        path: the file; its folder exists.
        step: at which the run starts or resumes: later lines, and one that was not written to its end, are removed.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "log.jsonl"
        >>> StepLog(path).append([{"step": 0, "loss": 2.0}, {"step": 1, "loss": float("nan")}])
        >>> StepLog(path, step=1).append([{"step": 1, "loss": 1.5}])
        >>> print(path.read_text("utf-8"), end="")
        {"step": 0, "loss": 2.0}
        {"step": 1, "loss": 1.5}
    """

    def __init__(self, path: Path, step: int = 0) -> None:
        self._path = path
        if path.exists():
            lines = path.read_text("utf-8").splitlines(keepends=True)
            write_text(path, "".join(line for line in lines if _is_before(line, step)))

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows that have a value ``step``."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(json_ready(dict(row)), allow_nan=False) + "\n" for row in rows))


def _is_before(line: str, step: int) -> bool:
    try:
        return int(json.loads(line)["step"]) < step and line.endswith("\n")
    except (ValueError, KeyError, TypeError):
        return False
