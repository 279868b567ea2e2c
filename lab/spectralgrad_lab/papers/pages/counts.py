"""How many statements of the papers came out how: by weight and verdict, each matter once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..items import Item, papers
from ..run_item import Outcome
from ..verdicts import (
    AGREES,
    AMBIGUOUS,
    ANALYSIS,
    DISAGREES,
    MISPRINT,
    NOT_RUN,
    NOT_SEEN,
    NUMBERS,
    OPPOSITE,
    REPRODUCED,
    RESULT,
    ROUNDING,
    SCOPE,
    TOO_SMALL,
    TRENDS,
    VERDICTS,
)

STATEMENTS = tuple(verdict for verdict in VERDICTS if verdict not in TRENDS)
_KINDS = {RESULT: "result", ANALYSIS: "analysis", NUMBERS: "number", SCOPE: "missing condition", MISPRINT: "misprint"}
_PLURALS = {"analysis": "analyses"}
_SHOW = {
    REPRODUCED: ("shows", "show", "the published direction"),
    NOT_SEEN: ("does not show", "do not show", "the effect"),
    OPPOSITE: ("shows", "show", "the contrary"),
    TOO_SMALL: ("is", "are", "too small to tell"),
    NOT_RUN: ("was", "were", "not run"),
}


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
    """The counts in one sentence, as README.md and the index of the pages say them."""
    found, tried = classes(outcomes), experiments(outcomes)
    verdicts: Counter[str] = Counter()
    for (_, verdict), count in found.items():
        verdicts[verdict] += count
    wrong = [_plural(found[weight, DISAGREES], kind) for weight, kind in _KINDS.items() if found[weight, DISAGREES]]
    small = [f"{n} {one if n == 1 else many} {what}" for v, (one, many, what) in _SHOW.items() if (n := tried[v])]
    return (
        f"Of {found.total()} statements of the papers {verdicts[AGREES] + verdicts[ROUNDING]} agree, "
        f"{verdicts[AMBIGUOUS]} can be read in several ways or leave out what decides them, and "
        f"{verdicts[DISAGREES]} do not agree{': ' * bool(wrong)}{_listed(wrong)}; "
        f"of {tried.total()} experiments, repeated at small size or on a CPU, {_listed(small) or 'none was run'}."
    )


def _plural(count: int, kind: str) -> str:
    return f"{count} {kind if count == 1 else _PLURALS.get(kind, kind + 's')}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
