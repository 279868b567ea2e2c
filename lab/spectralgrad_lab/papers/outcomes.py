"""Outcomes as files: a JSON file for each item, and its picture as PNG and SVG."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spectralgrad.io.files import write_json

from .items import all_items
from .judging import Outcome
from .registry import draw_of


def write(outcome: Outcome, folder: Path) -> None:
    """Write an outcome as ``FOLDER/PAPER/ID.json``, and its picture beside it if it has one."""
    file = folder / outcome.item.paper / f"{outcome.item.id}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, outcome.as_json())
    draw = draw_of(outcome.item.key)
    if draw is not None:
        figure = draw(outcome.values)
        for suffix in (".png", ".svg"):
            metadata = {"Date": None} if suffix == ".svg" else None
            figure.savefig(file.with_suffix(suffix), dpi=150, bbox_inches="tight", metadata=metadata)
        from matplotlib import pyplot

        pyplot.close(figure)


def read_all(folder: Path) -> dict[str, dict[str, Any]]:
    """The outcomes found in a folder, by the key of their item; items without a file are left out."""
    found = {}
    for item in all_items():
        file = folder / item.paper / f"{item.id}.json"
        if file.exists():
            found[item.key] = json.loads(file.read_text(encoding="utf-8"))
    return found
