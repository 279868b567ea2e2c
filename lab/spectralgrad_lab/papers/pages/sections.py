"""The part of a page that shows one item: what the paper says, what was tested, what came out, whether it matters."""

from __future__ import annotations

from pathlib import Path

from ..items import UNKNOWN, Item
from ..outcomes import file_of
from ..registry import draw_of
from ..run_item import UNFINISHED, Judged, Outcome
from ..terminal_text import duration, shown_condition, shown_published
from ..trends import smallest_effects, tally
from ..value_conditions import entries, shown
from ..verdicts import ANALYSIS, RESULT
from .markdown import capital, plain, sentence, table, verdict

_HEAD = ["value", "published", "test", "computed", "expected", "verdict"]


def picture_of(item: Item) -> Path:
    """Where the picture of an item is, seen from the pages."""
    return Path("images", f"{item.paper}-{item.id}.svg")


def section(item: Item, outcome: Outcome | None, results: Path) -> list[str]:
    """The lines of an item's section; ``results`` is the folder of the results, seen from the page."""
    weight = f" · {item.weight}" if item.weight else ""
    lines = [f"### {item.id}", "", f"*{capital(item.place)}{weight}:* {sentence(item.claim)}", ""]
    lines += [f"> {plain(item.quote)}", ""] if item.quote else []
    if outcome is None:
        needs = f" It needs {plain(item.needs)}." if item.needs else ""
        run = f"`spectralgrad reproduce {item.key}` takes about {duration(item.seconds)}."
        return [*lines, f"Not run.{needs} {run}", ""]
    lines += [f"**{verdict(outcome.verdict, item.weight)}.** {plain(outcome.reason)}", ""]
    if item.achieves:
        heading = "*What the method achieves:* " if item.weight in (RESULT, ANALYSIS) else ""
        lines += [f"{heading}{plain(item.achieves)}", ""]
    lines += [f"The same matter as {_link(item)}, where it is counted.", ""] if item.same_as else []
    lines += _departures(item, outcome)
    lines += _unfinished(item, outcome)
    lines += table(_HEAD, [_row(judged, item.weight) for judged in outcome.judged]) if outcome.judged else []
    lines += _smallest_effects(outcome)
    return lines + _picture(item) + _how_to_run(item, outcome, results)


def _departures(item: Item, outcome: Outcome) -> list[str]:
    """Where the runs depart from the published protocol."""
    if "departures" not in outcome.values:
        return []
    found = [plain(str(phrase)) for phrase in entries(outcome.values["departures"])]
    return [f"*Departures from the published protocol* (`--preset {item.preset}`): {'; '.join(found) or 'none'}.", ""]


def _unfinished(item: Item, outcome: Outcome) -> list[str]:
    """How many of the planned seeds there are, and how to go on."""
    if UNFINISHED not in outcome.values:
        return []
    command = f"`spectralgrad reproduce {item.key} --data DIR`"
    return [f"*Not finished*: {outcome.values[UNFINISHED]}. {command} carries out the other runs.", ""]


def _smallest_effects(outcome: Outcome) -> list[str]:
    """How large a difference would have had to be in order to be seen."""
    found = [
        f"{plain(j.quantity.what)}: {shown(smallest_effects(outcome.values[j.quantity.error]))}"
        for j in outcome.judged
        if j.quantity.error not in ("", UNKNOWN)
    ]
    return (
        [f"*Smallest effect that would have been seen*, two standard errors: {'; '.join(found)}.", ""] if found else []
    )


def _link(item: Item) -> str:
    paper, _, name = item.same_as.partition("/")
    page = "" if paper == item.paper else f"{paper}.md"
    return f"[{name}]({page}#{name.lower()})"


def _row(judged: Judged, weight: str) -> list[str]:
    quantity = judged.quantity
    cells = [quantity.what, shown_published(quantity.published), shown_condition(quantity.test)]
    cells += [shown(judged.value), shown_condition(quantity.expect)]
    counts = f" ({found})" if (found := tally(judged.comparisons)) else ""
    return [*map(plain, cells), verdict(judged.verdict, weight) + counts]


def _picture(item: Item) -> list[str]:
    if not draw_of(item.key):
        return []
    place = capital(item.place)
    file = picture_of(item).as_posix()
    return [f"![{place}, recomputed]({file})", "", f"*{place}, drawn from the computed values.*", ""]


def _how_to_run(item: Item, outcome: Outcome, results: Path) -> list[str]:
    data = " --data DIR" if item.needs else ""
    took = f"about {duration(item.seconds)}" if item.kind == "training" else duration(outcome.seconds)
    took = f"the runs of [{item.runs_of}](#{item.runs_of})" if item.runs_of else took
    stored = file_of(item, results).as_posix()
    lines = [f"`spectralgrad reproduce {item.key}{data}` ({took}) · [all values]({stored})", ""]
    return [*lines, "At full size, on a machine with a GPU:", "", f"    {item.command}", ""] if item.command else lines
