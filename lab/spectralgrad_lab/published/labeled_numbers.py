"""The numbers of a printed table, each with its name and the coordinates that its place in the table gives it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

Coordinates = Mapping[str, Any]
Labels = Mapping[str, Coordinates]
Entry = tuple[dict[str, Any], str, float]

NAMES = {
    "success": "success", "mean": "mean", "error": "mean", "top1": "mean", "sd": "sd", "min": "best", "best": "best",
    "top5": "top5", "best_top5": "best_top5", "failures": "failures",
}  # fmt: skip
"""The names of numbers in the files, and in a :class:`~spectralgrad_lab.published.tables.Cell`."""
_COLUMNS = "columns"
_COORDINATES = {
    "dataset", "d", "eps", "percentage", "vectors", "treatment", "method", "degree", "iterations", _COLUMNS
}  # fmt: skip


def entries(
    node: Mapping[str, Any], labels: Labels, at: Coordinates, axis: Sequence[Coordinates] = ({},)
) -> Iterator[Entry]:
    """Every number below a node of a table: its coordinates, its name, its value.

    Coordinates hold for everything below the node they are in, and lists of them run along the lists of numbers. The
    words of rows and columns stand for the coordinates that ``labels`` gives them; words without a label say nothing.

    Example:
        >>> table = {"d": [4, 8], "SVD": {"mean": [4.5, "-"], "success": [46.7, 0.0]}}
        >>> for entry in entries(table, {"SVD": {"method": "svd"}}, {"layer": "whitening"}):
        ...     print(entry)
        ({'layer': 'whitening', 'method': 'svd', 'd': 4}, 'mean', 4.5)
        ({'layer': 'whitening', 'method': 'svd', 'd': 4}, 'success', 46.7)
        ({'layer': 'whitening', 'method': 'svd', 'd': 8}, 'success', 0.0)
    """
    for key in (key for key in node if key in _COORDINATES):
        if isinstance(node[key], list):
            axis = _along(axis, [_meaning(key, item, labels) for item in node[key]])
        else:
            at = {**at, **_meaning(key, node[key], labels)}
    for key, item in node.items():
        if isinstance(item, Mapping):
            yield from entries(item, labels, {**at, **labels.get(key, {})}, axis)
        elif isinstance(item, list) and item and isinstance(item[0], Mapping):
            for child in item:
                yield from entries(child, labels, at, axis)
        elif key in NAMES or (key in labels and isinstance(item, list)):
            named = {"value": key, **at, **labels.get(key, {})}
            listed = isinstance(item, list) and len(axis) > 1
            for place, number in zip(axis, item, strict=True) if listed else [({}, item)]:
                yield from _numbers({**named, **place}, number)


def _along(axis: Sequence[Coordinates], more: Sequence[Coordinates]) -> list[Coordinates]:
    """An axis with further coordinates at each of its places."""
    whole = axis if len(axis) > 1 else [axis[0]] * len(more)
    return [{**place, **further} for place, further in zip(whole, more, strict=True)]


def _meaning(key: str, item: Any, labels: Labels) -> Coordinates:
    if isinstance(item, str) and item in labels:
        return labels[item]
    return {} if key == _COLUMNS else {key: _value(item)}


def _numbers(place: dict[str, Any], item: Any) -> Iterator[Entry]:
    """The numbers of one place: those that its labels state, and a number or a pair of mean and deviation."""
    where = {key: value for key, value in place.items() if key not in NAMES and key != "value"}
    found = {key: place[key] for key in NAMES if key in place}
    found |= dict(zip(("mean", "sd"), item, strict=True)) if isinstance(item, list) else {place["value"]: item}
    for name, number in found.items():
        if isinstance(value := _value(number), float | int) and not math.isnan(value):
            yield where, NAMES[name], value


def _value(item: Any) -> Any:
    """A number that is stored as text, as printed, or the item itself."""
    for kind in (int, float) if isinstance(item, str) else ():
        with suppress(ValueError):
            return kind(item)
    return item
