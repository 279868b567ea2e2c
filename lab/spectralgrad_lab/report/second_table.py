"""The second table of a page: failed runs, and the top-5 errors and times that the runs recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..comparison.results import Summary
from ..comparison.table import extra_cells, extra_columns

_PARTS = {"failed": "failures", "top-5 %": "top-5 errors", "net fwd ms": "times"}
_SENTENCES = {
    "top-5 %": "Top-5 errors are means over the finished runs, after the last epoch and after the best one.",
    "net fwd ms": "Times are medians per training step: forward (fwd) and backward (bwd) pass of all spectral layers "
    "together, and of the network.",
}


def contents(summaries: Sequence[Summary]) -> dict[str, Any]:
    """What the template shows: title, sentences, names of the columns, and rows.

    Example:
        >>> from spectralgrad_lab.comparison.results import summarize
        >>> from spectralgrad_lab.training.config.run_config import Config
        >>> from spectralgrad_lab.training.storage.records import Result
        >>> found = contents(summarize([Result(Config(method="svd"), "failed")]))
        >>> found["title"], found["rows"][0]["cells"]
        ('Failures', [('failed', '1')])
    """
    names = extra_columns(summaries)
    parts = [part for name, part in _PARTS.items() if name in names]
    return {
        "names": names,
        "title": (", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)).capitalize(),
        "sentences": [text for name, text in _SENTENCES.items() if name in names],
        "rows": [
            {"name": s.name, "failed": bool(s.failed), "cells": list(zip(names, extra_cells(s, names), strict=True))}
            for s in summaries
        ],
    }
