"""Items and outcomes as text for a terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .items import KINDS, Item
from .registry import declared
from .run_item import Outcome
from .trends import tally
from .value_conditions import ANY, MANY, shown
from .verdicts import (
    AGREES,
    AMBIGUOUS,
    DISAGREES,
    NOT_RUN,
    OPPOSITE,
    REPRODUCED,
    ROUNDING,
    TRENDS,
    VERDICTS,
    marked,
)

_STYLE = {AGREES: "green", ROUNDING: "green", REPRODUCED: "green", DISAGREES: "red", OPPOSITE: "red"}
_OPEN = "yellow"
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
    return Text(marked(item.verdict, item.weight) + here, style=_STYLE.get(item.verdict, _OPEN))


def heading(outcome: Outcome) -> Text:
    """The item's name, place, weight, claim, and the paper's words."""
    item = outcome.item
    weight = f" · {item.weight}" if item.weight else ""
    quote = ("\n“" + item.quote + "”", "italic") if item.quote else ""
    return Text.assemble("\n", (item.key, "bold"), f"  {item.place}{weight}\n", item.claim, quote)


def full_size(outcome: Outcome) -> Text:
    """The commands of the full-size runs of a training item."""
    return Text.assemble("full size, with a GPU:  ", (outcome.item.command, "italic"))


def quantities(outcome: Outcome) -> Table:
    """A table of an outcome's values: what the paper prints, the test, computed, expected, verdict."""
    table = Table(box=None, pad_edge=False)
    for name in ("", "published", "test", "computed", "expected", "verdict"):
        table.add_column(name)
    for judged in outcome.judged:
        quantity = judged.quantity
        conditions = shown_published(quantity.published), shown_condition(quantity.test)
        row = quantity.what, *conditions, shown(judged.value), shown_condition(quantity.expect)
        mark = judged.verdict if judged.as_expected else f"! {judged.verdict or 'not as expected'}"
        counts = f" ({found})" if (found := tally(judged.comparisons)) else ""
        style = _STYLE.get(judged.verdict, _OPEN if judged.verdict else "")
        table.add_row(*(Text(cell) for cell in row), Text(mark + counts, style=style))
    return table


def line(outcome: Outcome) -> Text:
    """The verdict in one line: name, verdict, reason."""
    mark = "" if outcome.as_expected else "! "
    verdict = marked(outcome.verdict, outcome.item.weight), _STYLE.get(outcome.verdict, _OPEN)
    return Text.assemble((f"{mark}{outcome.item.key}  ", "bold"), verdict, f"  {outcome.reason}")


def counted(counts: Mapping[str, int]) -> str:
    """Verdicts with their numbers, in the order of the verdicts.

    Example:
        >>> counted({"does not agree": 1, "agrees": 3})
        '3 agree, 1 does not agree'
        >>> counted({"agrees": 1, "agrees up to rounding": 2, "does not agree": 2, "ambiguous": 1, "not run": 4})
        '1 agrees, 2 agree up to rounding, 2 do not agree, 1 is ambiguous, 4 were not run'
        >>> counted({"direction reproduced": 2, "not seen": 1, "opposite": 0, "too small to tell": 3})
        '2 direction reproduced, 1 not seen, 3 too small to tell'
    """
    phrases = {AMBIGUOUS: "is ambiguous", NOT_RUN: "was not run"}
    found = []
    for name in (*VERDICTS, NOT_RUN):
        phrase = phrases.get(name, name)
        if counts.get(name, 0) > 1 and name not in TRENDS:
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


def shown_published(published: str | Sequence[str] | None) -> str:
    """What a paper prints as a cell shows it; a dash if it prints nothing.

    Example:
        >>> shown_published(None), shown_published(["0.2%", "0.2%"]), shown_published(["1", "2"])
        ('–', '0.2%', '1, 2')
    """
    if published is None or isinstance(published, str):
        return published or "–"
    return published[0] if len(set(published)) == 1 else ", ".join(published)


def shown_condition(condition: str | Sequence[str] | None) -> str:
    """A condition as a cell shows it; a dash if there is none.

    Example:
        >>> shown_condition(None), shown_condition("< 1e-12"), shown_condition("= solved")
        ('–', '< 1e-12', 'solved')
        >>> shown_condition(["3", "0.1 .. 0.2", "0 .. 0"]), shown_condition(["any", "< 1"])
        ('3, 0.1 to 0.2, 0', '–, < 1')
        >>> shown_condition(["< 1"] * 9)
        'a condition for each'
        >>> shown_condition("<= 0.05 ~ 0.01")
        '≤ 0.05, ≈ within 0.01'
    """
    if condition in (None, ANY):
        return "–"
    if not isinstance(condition, str):
        return ", ".join(map(shown_condition, condition)) if len(condition) <= MANY else "a condition for each"
    if condition.startswith("= "):
        return condition[2:].strip()
    text = (
        re.sub(r"\s*\.\.\s*", " to ", condition)
        .removesuffix(" ± 0")
        .replace("<=", "≤")
        .replace(">=", "≥")
        .replace(" ~", ", ≈ within")
    )
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
