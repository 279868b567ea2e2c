"""How many statements of the papers came out how: by weight and verdict, each matter once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from .items import Item, papers
from .judging import Outcome
from .verdicts import (
    AGREES,
    AMBIGUOUS,
    ANALYSIS,
    DISAGREES,
    MISPRINT,
    NUMBERS,
    RESULT,
    ROUNDING,
    SCOPE,
    TRENDS,
    VERDICTS,
)

NOT_RUN = "not run"
STATEMENTS = tuple(verdict for verdict in VERDICTS if verdict not in TRENDS)
_KINDS = {RESULT: "result", ANALYSIS: "analysis", NUMBERS: "number", SCOPE: "missing condition", MISPRINT: "misprint"}
_PLURALS = {"analysis": "analyses"}


def counted_items() -> list[Item]:
    """The items of the papers, without our own statements and without those that another item counts."""
    return [item for paper in papers() if not paper.own for item in paper.items if not item.same_as]


def verdicts_of(items: Sequence[Item], outcomes: Mapping[str, Outcome]) -> Counter[str]:
    """How often each verdict occurs; items without an outcome are ``"not run"``."""
    return Counter(outcomes[item.key].verdict if item.key in outcomes else NOT_RUN for item in items)


def classes(outcomes: Mapping[str, Outcome]) -> Counter[tuple[str, str]]:
    """The number of statements of the papers by weight and verdict; experiments are not among them."""
    items = [item for item in counted_items() if not item.is_experiment]
    return Counter((item.weight, verdict) for item in items for verdict in verdicts_of([item], outcomes))


def experiments(outcomes: Mapping[str, Outcome]) -> Counter[str]:
    """The number of experiments by verdict."""
    return verdicts_of([item for item in counted_items() if item.is_experiment], outcomes)


def in_words(outcomes: Mapping[str, Outcome]) -> str:
    """The counts in one sentence, as README.md and the pages say them."""
    found, tried = classes(outcomes), experiments(outcomes)
    total = sum(found.values())
    by_verdict = {v: sum(count for (_, verdict), count in found.items() if verdict == v) for v in STATEMENTS}
    wrong = [_plural(found[weight, DISAGREES], kind) for weight, kind in _KINDS.items() if found[weight, DISAGREES]]
    small = ", ".join(f"{tried[verdict]} {verdict}" for verdict in TRENDS if tried[verdict])
    return (
        f"Of {total} statements of the papers {by_verdict[AGREES] + by_verdict[ROUNDING]} agree, "
        f"{by_verdict[AMBIGUOUS]} can be read in several ways or leave out what decides them, and "
        f"{by_verdict[DISAGREES]} do not agree: {', '.join(wrong[:-1])} and {wrong[-1]}; "
        f"of {sum(tried.values())} experiments, repeated at small size: {small}."
        if wrong
        else f"Of {total} statements of the papers {by_verdict[AGREES] + by_verdict[ROUNDING]} agree."
    )


def _plural(count: int, kind: str) -> str:
    return f"{count} {kind if count == 1 else _PLURALS.get(kind, kind + 's')}"
