"""Outcomes as files: a JSON file for each item, and its picture as PNG and SVG."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spectralgrad.io.files import write_json

from .items import Item, ItemError, all_items
from .registry import draw_of
from .run_item import Outcome, judge


def file_of(item: Item, folder: Path) -> Path:
    """The JSON file of an item in a folder of results, ``FOLDER/PAPER/ID.json``."""
    return folder / item.paper / f"{item.id}.json"


def write(outcome: Outcome, folder: Path) -> None:
    """Write an outcome as ``FOLDER/PAPER/ID.json``."""
    file = file_of(outcome.item, folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, outcome.as_json())


def draw(outcome: Outcome, *files: Path) -> bool:
    """Draw an outcome into files, ``.svg`` or ``.png``; returns False if the item has no picture.

    Text stays text in an SVG file, which keeps it small, and the same values give the same file.
    """
    drawing = draw_of(outcome.item.key)
    if drawing is None:
        return False
    from matplotlib import rc_context

    figure = drawing(outcome.values)
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if file.suffix == ".svg" else None
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": outcome.item.key}):
            figure.savefig(file, dpi=150, bbox_inches="tight", metadata=metadata)
    return True


def read_all(folder: Path) -> dict[str, Outcome]:
    """The outcomes found in a folder, by the key of their item; items without a file are left out.

    Verdicts and reasons are made again from the stored values, so that a change of an items file needs no new run.

    Raises:
        ItemError: a file does not have the values that its item needs; run the item again.
    """
    found = {}
    for item in all_items():
        file = file_of(item, folder)
        if file.exists():
            values, seconds = _read(file)
            found[item.key] = judge(item, values, seconds)
    return found


def _read(file: Path) -> tuple[dict[str, Any], float]:
    """The values and the time of a stored outcome."""
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        return {name: _number(value) for name, value in stored["values"].items()}, float(stored["seconds"])
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ItemError(
            f"{file}: expected a result of `spectralgrad reproduce`; run the item again: {problem!r}"
        ) from None


def _number(value: Any) -> Any:
    """The infinities and NaN that JSON holds as words."""
    if isinstance(value, list):
        return [_number(entry) for entry in value]
    return float(value) if value in ("nan", "inf", "-inf") else value
