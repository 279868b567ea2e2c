"""Items and outcomes as text for a terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .conditions import MANY, shown
from .items import KINDS, Item
from .judging import Outcome
from .registry import declared
from .verdicts import AGREES, AMBIGUOUS, DISAGREES, NOT_COMPARABLE, ROUNDING, VERDICTS, marked

_STYLE = {AGREES: "green", ROUNDING: "green", DISAGREES: "red", AMBIGUOUS: "yellow", NOT_COMPARABLE: "yellow"}
_WIDE = 130  # columns that the listing as a table needs


def listing(items: Sequence[Item], width: int, done: Collection[str] = ()) -> Group:
    """The items with place, claim, kind, time, data needed and recorded verdict, and counts at the end.

    A terminal narrower than 130 columns gets two or more lines for each item, a wider one a table.

    Args:
        items: what to list.
        width: of the terminal.
        done: keys of the items that have a result in the user's folder.
    """
    kinds = Counter(item.kind for item in items)
    verdicts = Counter(item.verdict for item in items)
    seconds = sum(item.seconds for item in items)
    time = f"about {duration(seconds)}" if seconds >= 1 else duration(seconds)
    by_kind = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
    summary = f"\n{number(len(items))} ({by_kind}), {time} on two cores. Recorded verdicts: {counted(verdicts)}."
    return Group(_table(items, done) if width >= _WIDE else _lines(items, done), Text(summary))


def _table(items: Sequence[Item], done: Collection[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("item", "kind", "place", "claim", "time", "recorded verdict"):
        fixed = name in ("item", "kind", "time", "recorded verdict")
        table.add_column(name, no_wrap=fixed, max_width=28 if name == "place" else None)
    for item in items:
        cells = [Text(cell) for cell in (item.key, _kind(item), item.place, item.claim, _time(item))]
        table.add_row(*cells, _status(item, done))
    return table


def _lines(items: Sequence[Item], done: Collection[str]) -> Group:
    shown_items: list[Text | Padding] = []
    for item in items:
        middle = f"  {item.place} · {_kind(item)} · {_time(item)} · "
        shown_items += [
            Text.assemble((item.key, "bold"), middle, _status(item, done)),
            Padding(Text(item.claim), (0, 0, 0, 4)),
        ]
    return Group(*shown_items)


def _kind(item: Item) -> str:
    return f"{item.kind}, needs {item.needs}" if item.needs else item.kind


def _time(item: Item) -> str:
    return f"the runs of {item.runs_of}" if item.runs_of else duration(item.seconds)


def _status(item: Item, done: Collection[str]) -> Text:
    if item.key not in declared():
        return Text("no code yet", style="red")
    here = " (run here)" if item.key in done else ""
    return Text(marked(item.verdict) + here, style=_STYLE[item.verdict])


def heading(outcome: Outcome) -> Text:
    """The item's name, place and claim."""
    item = outcome.item
    return Text.assemble("\n", (item.key, "bold"), f"  {item.place}\n", item.claim)


def full_size(outcome: Outcome) -> Text:
    """The commands of the full-size runs of a training item."""
    return Text.assemble("full size, with a GPU:  ", (outcome.item.command, "italic"))


def quantities(outcome: Outcome) -> Table:
    """A table of an outcome's values: the condition if the claim holds, computed, expected, verdict."""
    table = Table(box=None, pad_edge=False)
    for name in ("", "if the claim holds", "computed", "expected", "verdict"):
        table.add_column(name)
    for judged in outcome.judged:
        claim, expect = shown_condition(judged.quantity.claim), shown_condition(judged.quantity.expect)
        row = judged.quantity.what, claim, shown(judged.value), expect
        mark = judged.verdict if judged.as_expected else f"! {judged.verdict or 'not as expected'}"
        table.add_row(*(Text(cell) for cell in row), Text(mark, style=_STYLE.get(judged.verdict, "")))
    return table


def line(outcome: Outcome) -> Text:
    """The verdict in one line: name, verdict, reason."""
    mark = "" if outcome.as_expected else "! "
    style = _STYLE[outcome.verdict]
    return Text.assemble(
        (f"{mark}{outcome.item.key}  ", "bold"), (marked(outcome.verdict), style), f"  {outcome.reason}"
    )


def counted(counts: Mapping[str, int]) -> str:
    """Verdicts with their numbers, in the order of the verdicts.

    Example:
        >>> counted({"does not agree": 1, "agrees": 3})
        '3 agree, 1 does not agree'
        >>> counted({"agrees": 1, "agrees up to rounding": 2, "does not agree": 2, "ambiguous": 1, "not run": 4})
        '1 agrees, 2 agree up to rounding, 2 do not agree, 1 is ambiguous, 4 were not run'
    """
    phrases = {AMBIGUOUS: "is ambiguous", NOT_COMPARABLE: "is not comparable at this size", "not run": "was not run"}
    found = []
    for name in (*VERDICTS, "not run"):
        phrase = phrases.get(name, name)
        if counts.get(name, 0) > 1:
            first, _, rest = phrase.partition(" ")
            plural = {"agrees": "agree", "does": "do", "is": "are", "was": "were"}[first]
            phrase = f"{plural} {rest}".strip()
        if counts.get(name):
            found.append(f"{counts[name]} {phrase}")
    return ", ".join(found) or "none was computed"


def number(count: int) -> str:
    """A number of items.

    Example:
        >>> number(1), number(2)
        ('1 item', '2 items')
    """
    return f"{count} item{'' if count == 1 else 's'}"


def shown_condition(condition: str | Sequence[str] | None) -> str:
    """A condition as a cell shows it; a dash if there is none.

    Example:
        >>> shown_condition(None), shown_condition("< 1e-12"), shown_condition("= solved")
        ('–', '< 1e-12', 'solved')
        >>> shown_condition(["3", "0.1 .. 0.2", "0 .. 0"]), shown_condition(["< 1"] * 9)
        ('3, 0.1 to 0.2, 0', 'a condition for each')
    """
    if condition is None:
        return "–"
    if not isinstance(condition, str):
        return ", ".join(map(shown_condition, condition)) if len(condition) <= MANY else "a condition for each"
    if condition.startswith("= "):
        return condition[2:].strip()
    text = re.sub(r"\s*\.\.\s*", " to ", condition).removesuffix(" ± 0").replace("<=", "≤").replace(">=", "≥")
    low, _, high = text.partition(" to ")
    return low if low == high else text


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
