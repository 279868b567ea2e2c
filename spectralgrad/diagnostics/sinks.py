"""Outputs for the records of a monitor: a CSV file and a TensorBoard writer."""

from __future__ import annotations

import csv
import math
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import torch

from ..io.files import require_folder
from .records import Record

COLUMNS = [f.name for f in fields(Record) if f.name != "eigenvalues"] + ["dominance"]
_CURVES = ("condition", "rank", "gap", "ties", "cut", "gradient_norm", "fallbacks", "failures")


class Sink(Protocol):
    """Receives finished records."""

    def write(self, record: Record) -> None: ...


class CSV:
    """Appends rows to a file, with a header if the file is new. The file is open only while a row is written."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        require_folder(self._path)
        if not self._path.exists() or self._path.stat().st_size == 0:
            self._append(dict(zip(COLUMNS, COLUMNS, strict=True)))

    def write(self, record: Record) -> None:
        """Append a row; NaN becomes an empty field."""
        self._append({k: "" if v != v else v for k, v in record.row().items()})

    def _append(self, row: dict[str, Any]) -> None:
        with self._path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, COLUMNS).writerow(row)


class TensorBoard:
    """Writes scalars ``spectral/<layer>/<quantity>``, and a histogram of log10 λ if the writer has ``add_histogram``.

    The writer is not closed; it belongs to the caller.
    """

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, record: Record) -> None:
        """Add the finite quantities of a record."""
        prefix = f"spectral/{record.layer or 'layer'}"
        values = record.row()
        for name in _CURVES:
            if math.isfinite(values[name]):
                self._writer.add_scalar(f"{prefix}/{name}", values[name], record.step)
        positive = [x for x in record.eigenvalues if x > 0]
        if positive and hasattr(self._writer, "add_histogram"):
            logarithms = torch.tensor(positive, dtype=torch.float64).log10()
            self._writer.add_histogram(f"{prefix}/log10_eigenvalues", logarithms, record.step)


def leading_process() -> bool:
    """True if this process writes: it has rank 0, or the run is not distributed."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return True
    return torch.distributed.get_rank() == 0
