"""Items and outcomes as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from .conditions import shown
from .items import AGREES, AMBIGUOUS, DISAGREES, NOT_COMPARABLE, ROUNDING, Item
from .judging import Outcome
from .registry import declared

_STYLE = {AGREES: "green", ROUNDING: "green", DISAGREES: "red", AMBIGUOUS: "yellow", NOT_COMPARABLE: "yellow"}


def listing(items: Sequence[Item]) -> Table:
    """A table of items: name, place, claim, time, data needed, and whether there is code for it."""
    table = Table(box=None, pad_edge=False)
    for name in ("item", "place", "claim", "time", "needs", "status"):
        table.add_column(name, no_wrap=name in ("item", "time"), max_width=60 if name == "claim" else None)
    have = declared()
    for item in items:
        status = item.verdict if item.key in have else "no code yet"
        row = item.key, item.place, item.claim, duration(item.seconds), item.needs or "–", status
        table.add_row(*(Text(cell) for cell in row))
    return table


def heading(outcome: Outcome) -> Text:
    """The item's name, place and claim."""
    item = outcome.item
    return Text.assemble("\n", (item.key, "bold"), f"  {item.place}\n", item.claim)


def full_size(outcome: Outcome) -> Text:
    """The commands of the full-size runs of a training item."""
    return Text.assemble("full size, with a GPU:  ", (outcome.item.command, "italic"))


def quantities(outcome: Outcome) -> Table:
    """A table of an outcome's quantities: published, ours, expected, verdict."""
    table = Table(box=None, pad_edge=False)
    for name in ("", "published", "ours", "expected", "verdict"):
        table.add_column(name)
    for judged in outcome.judged:
        row = judged.quantity.what, shown(judged.quantity.claim), shown(judged.value), shown(judged.quantity.expect)
        mark = judged.verdict if judged.as_expected else f"! {judged.verdict or 'not as expected'}"
        table.add_row(*(Text(cell) for cell in row), Text(mark, style=_STYLE.get(judged.verdict, "")))
    return table


def line(outcome: Outcome) -> Text:
    """The verdict in one line: name, verdict, reason."""
    mark = "" if outcome.as_expected else "! "
    style = _STYLE[outcome.verdict]
    return Text.assemble((f"{mark}{outcome.item.key}  ", "bold"), (outcome.verdict, style), f"  {outcome.reason}")


def duration(seconds: float) -> str:
    """A duration in round numbers.

    Example:
        >>> duration(0.2), duration(45), duration(600), duration(7200)
        ('< 1 s', '45 s', '10 min', '2 h')
    """
    if seconds < 1:
        return "< 1 s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.2g} h"
