"""Items: a claim of a paper, the quantities that decide it, and where the texts are read from."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from .value_conditions import ANY, parse
from .verdicts import AGREES, NOT_RUN, TRENDS, VERDICTS, WEIGHTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KINDS = ("analytic", "figure", "training")

_EXPERIMENTS = (*TRENDS, NOT_RUN)
_ROOT = Path(__file__).parent
_ITEM = {
    "id", "place", "names", "claim", "quote", "kind", "verdict", "weight", "same_as", "reason", "achieves", "seconds",
    "needs", "quantity", "command", "runs_of", "preset",
}  # fmt: skip
_QUANTITY = {"name", "what", "published", "test", "expect", "error"}
UNKNOWN = "unknown"
"""The standard error of a single run."""


class ItemError(ValueError):
    """An items file is wrong, or no item has the name asked for."""


@dataclass(frozen=True)
class Quantity:
    """One computed value of an item.

    Attributes:
        name: its key in the result of the item's function.
        what: what it is, in a few words.
        published: what the paper prints for it, verbatim, or None if it prints nothing. A value ``NAME_published`` that
            the item's function returns takes its place.
        test: the condition that the paper's statement puts on it, or None if the paper says nothing about it.
        expect: the condition that a correct computation satisfies; the tests check it. None if there is none, as for
            what training gives.
        error: the name of the value that has its standard errors, or ``"unknown"``; for experiments only.
    """

    name: str
    what: str
    published: str | list[str] | None = None
    test: str | list[str] | None = None
    expect: str | list[str] | None = None
    error: str = ""


@dataclass(frozen=True)
class Item:
    """A claim of a paper: a table, a figure, an equation or a sentence.

    Attributes:
        paper: the folder of its paper, such as ``"tpami"``.
        id: its number, such as ``"R22"`` or ``"figure-4"``.
        place: where the paper states it.
        claim: the statement, in one line of our own.
        quote: the statement in the paper's words; needed for every verdict but ``"agrees"``.
        kind: ``"analytic"``, ``"figure"`` or ``"training"``.
        verdict: the verdict we expect, one of ``VERDICTS``. ``"ambiguous"`` is a judgement that no computation makes.
            ``"not run"`` is for an experiment that is written and has no result yet.
        weight: what the statement is about, one of ``WEIGHTS``; empty for our own statements.
        same_as: the key of another item, such as ``"tpami/R36"``, that is about the same matter; this one is not
            counted then.
        reason: one line on the verdict; ``{name}`` stands for a computed value.
        achieves: where the paper is wrong, what its method achieves nevertheless.
        names: other names of the item, such as ``"table-4"``; several items may share one.
        seconds: about how long it takes on two cores.
        needs: data that has to be obtained first, such as ``"CIFAR-10"``.
        runs_of: for training, the id of the item of the same paper whose runs this one shows in another way;
            ``seconds`` does not count them.
        command: for training, the command of the full-size runs, for a machine with a GPU.
        preset: for training, the preset that has the published protocol; the page says where the runs depart from it.
        quantities: the values that decide it.
    """

    paper: str
    id: str
    place: str
    claim: str
    kind: str
    verdict: str
    reason: str
    quote: str = ""
    weight: str = ""
    same_as: str = ""
    achieves: str = ""
    names: tuple[str, ...] = ()
    seconds: float = 1.0
    needs: str = ""
    runs_of: str = ""
    command: str = ""
    preset: str = ""
    quantities: tuple[Quantity, ...] = field(default=())

    @property
    def key(self) -> str:
        """The item's unique name, such as ``"tpami/R22"``."""
        return f"{self.paper}/{self.id}"

    @property
    def is_experiment(self) -> bool:
        """Whether it repeats an experiment at small size or on other hardware, which has verdicts of its own."""
        return self.verdict in _EXPERIMENTS

    def answers_to(self, name: str) -> bool:
        """Whether the item is meant by a name such as ``tpami``, ``tpami/r22``, ``r22`` or ``tpami/table-4``."""
        wanted = name.lower()
        own = [self.id.lower(), *(n.lower() for n in self.names)]
        return wanted == self.paper or any(wanted == f"{self.paper}/{n}" for n in own) or wanted == self.id.lower()


@dataclass(frozen=True)
class Paper:
    """A paper and its items.

    Attributes:
        name: its folder, such as ``"tpami"``.
        title, authors, venue: as printed.
        about: one paragraph on what it proposes.
        own: whether these are our own statements, which are not counted among the papers'.
        items: its items, in the order of the file.
    """

    name: str
    title: str
    authors: str
    venue: str
    about: str
    own: bool
    items: tuple[Item, ...]


@cache
def papers() -> tuple[Paper, ...]:
    """All papers, in the order they are presented.

    Raises:
        ItemError: a file is wrong.

    Example:
        >>> [paper.name for paper in papers()]
        ['neurips', 'tpami', 'iccv', 'eccv', 'gradients']
    """
    found = tuple(_read(_ROOT / name / "items.toml") for name in ("neurips", "tpami", "iccv", "eccv", "gradients"))
    check_duplicates([item for paper in found for item in paper.items])
    return found


def all_items() -> list[Item]:
    """The items of all papers."""
    return [item for paper in papers() for item in paper.items]


def select(names: Sequence[str]) -> list[Item]:
    """The items with the given names, each once, in the order of the papers.

    ``all-analytic``, ``all-figures`` and ``all-training`` are the items of that kind, ``all`` is everything.

    Raises:
        ItemError: a name means no item.

    Example:
        >>> [item.key for item in select(["neurips/table-1"])][0]
        'neurips/B7'
    """
    groups = {"all-analytic": "analytic", "all-figures": "figure", "all-training": "training"}
    chosen: dict[str, Item] = {}
    for name in names:
        group = name.lower()
        found = [i for i in all_items() if group == "all" or groups.get(group) == i.kind or i.answers_to(name)]
        if not found:
            raise ItemError(f"no item is called {name!r}; `spectralgrad reproduce list` shows all of them")
        chosen.update((item.key, item) for item in found)
    return [item for item in all_items() if item.key in chosen]


def _read(file: Path) -> Paper:
    with file.open("rb") as stream:
        try:
            document = tomllib.load(stream)
        except tomllib.TOMLDecodeError as problem:
            raise ItemError(f"{file.parent.name}/{file.name}: {problem}") from problem
    name, own = file.parent.name, document.get("own", False)
    items = tuple(_item(name, entry, own) for entry in document.get("item", []))
    keys = [item.key for item in items]
    if len(set(keys)) < len(keys):
        raise ItemError(f"{name}: items with the same id: {sorted({k for k in keys if keys.count(k) > 1})}")
    return Paper(name, document["title"], document["authors"], document["venue"], document["about"], own, items)


def check_duplicates(items: Sequence[Item]) -> None:
    """Check that every ``same_as`` names another item, which is counted.

    Raises:
        ItemError: it names none, or one that is a duplicate itself.
    """
    counted = {item.key for item in items if not item.same_as}
    for item in items:
        if item.same_as and item.same_as not in counted:
            raise ItemError(f"{item.key}: same_as expected the key of an item that is counted, got {item.same_as!r}")


def _item(paper: str, entry: Mapping[str, Any], own: bool) -> Item:
    where = f"{paper}/{entry.get('id', '?')}"
    required = {"id", "place", "claim", "verdict", "reason"}
    _check_keys(where, entry, _ITEM, required if own else required | {"weight"})
    kind, verdict = entry.get("kind", "analytic"), entry["verdict"]
    if kind not in KINDS or verdict not in (*VERDICTS, NOT_RUN):
        raise ItemError(f"{where}: expected a kind of {KINDS} and a verdict of {(*VERDICTS, NOT_RUN)}")
    if not own and entry["weight"] not in WEIGHTS:
        raise ItemError(f"{where}: expected a weight of {tuple(WEIGHTS)}, got {entry['weight']!r}")
    if not own and verdict != AGREES and not entry.get("quote"):
        raise ItemError(f"{where}: expected a quote, the paper's own words, for an item with the verdict {verdict!r}")
    settings = {key: value for key, value in entry.items() if key not in ("quantity", "names", "kind")}
    free = kind == "training" or verdict in _EXPERIMENTS  # values that are only shown need no condition
    quantities = tuple(_quantity(where, q, free, verdict in _EXPERIMENTS) for q in entry.get("quantity", []))
    return Item(paper, kind=kind, names=tuple(entry.get("names", ())), quantities=quantities, **settings)


def _quantity(where: str, entry: Mapping[str, Any], free: bool, experiment: bool) -> Quantity:
    where = f"{where}, {entry.get('name', '?')}"
    _check_keys(where, entry, _QUANTITY, required={"name", "what"})
    test = entry.get("test")
    expect = entry.get("expect", None if experiment else test)
    if expect is None and not free:
        raise ItemError(f"{where}: expected a condition `test`, `expect` or both")
    for condition in [c for one in (test, expect) if one for c in ([one] if isinstance(one, str) else one)]:
        if condition not in ("yes", "no", ANY) and not condition.startswith("= "):
            try:
                parse(condition)
            except ValueError as problem:
                raise ItemError(f"{where}: {problem}") from problem
    return Quantity(**{**entry, "test": test, "expect": expect})


def _check_keys(where: str, entry: Mapping[str, Any], known: set[str], required: set[str]) -> None:
    if unknown := set(entry) - known:
        raise ItemError(f"{where}: unknown {sorted(unknown)}; known are {sorted(known)}")
    if missing := required - set(entry):
        raise ItemError(f"{where}: missing {sorted(missing)}")
