"""Run an item and compare what comes out with what the paper prints."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch

from .departures import departures
from .items import UNKNOWN, Item, ItemError, Quantity
from .registry import Compute, Train, compute_of, train_of
from .training import Setup, Training
from .trends import least_favourable, most, trends
from .value_conditions import Value, entries, holds, shown
from .verdicts import AGREES, AMBIGUOUS, DISAGREES, ROUNDING

UNFINISHED = "unfinished"
"""The value that says how many of the seeds an experiment has, if it has not all of them."""
_ORDER = (AGREES, ROUNDING, DISAGREES)


@dataclass(frozen=True)
class Judged:
    """A quantity with its computed value.

    Attributes:
        quantity: what was computed.
        value: the computed value.
        as_expected: whether it satisfies ``expect``.
        verdict: how it compares with the paper's statement; empty if the paper makes none.
        comparisons: for experiments, the verdicts on the entries of the value.
    """

    quantity: Quantity
    value: Value
    as_expected: bool
    verdict: str
    comparisons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The result of running an item.

    Attributes:
        item: the item.
        values: everything its function computed.
        judged: its quantities.
        verdict: the verdict on the claim.
        reason: the item's reason with the computed values filled in.
        seconds: how long it took.
    """

    item: Item
    values: Mapping[str, Value] = field(repr=False)
    judged: tuple[Judged, ...]
    verdict: str
    reason: str
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Whether every value and the verdict are what the items file says."""
        return all(j.as_expected for j in self.judged) and self.verdict == self.item.verdict

    def as_json(self) -> dict[str, Any]:
        """The outcome as JSON can hold it."""
        item = {key: _for_json(value) for key, value in asdict(self.item).items() if key != "quantities"}
        quantities = [
            {
                **asdict(j.quantity),
                "ours": _for_json(j.value),
                "as_expected": j.as_expected,
                "verdict": j.verdict,
                **({"comparisons": list(j.comparisons)} if j.comparisons else {}),
            }
            for j in self.judged
        ]
        found = {"verdict": self.verdict, "reason": self.reason, "seconds": round(self.seconds, 3)}
        return {**item, **found, "quantities": quantities, "values": {k: _for_json(v) for k, v in self.values.items()}}


def run(item: Item, setup: Setup | None = None) -> Outcome:
    """Compute an item and judge it.

    Random numbers start from the same seed for every item, so an item gives the same result alone and among others.

    Args:
        item: the item.
        setup: where and how training runs are carried out; only items of kind ``"training"`` need it.

    Raises:
        ItemError: no function computes the item, its function does not return a quantity of the items file, or data
            for training is missing.
    """
    compute = _function(item, setup)
    start = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        values = compute()
    return judge(item, values, time.perf_counter() - start)


def judge(item: Item, values: Mapping[str, Value], seconds: float) -> Outcome:
    """The outcome of an item from its computed values.

    Raises:
        ItemError: a quantity of the items file is not among the values, or has another type than its condition.
    """
    judged = tuple(_quantity(item, quantity, values) for quantity in item.quantities)
    return Outcome(item, values, judged, _verdict(item, judged), _fill(item, values), seconds)


def _function(item: Item, setup: Setup | None) -> Compute:
    compute, train = compute_of(item.key), train_of(item.key)
    if train is not None:
        if setup is None:
            raise ItemError(f"{item.key}: expected a setup for its training runs, got none")
        return partial(_trained, train, setup.of(item))
    if compute is None:
        raise ItemError(f"{item.key}: there is no function that computes it")
    return compute


def _trained(train: Train, training: Training) -> Mapping[str, Value]:
    """The values of a training item, where its runs depart from the published protocol, and how many seeds it has."""
    values, preset = dict(train(training)), training.item.preset
    if preset and training.ran:
        values["departures"] = departures(preset, training.ran)
    if training.unfinished:
        values[UNFINISHED] = training.unfinished[0]
    return values


def _quantity(item: Item, quantity: Quantity, values: Mapping[str, Value]) -> Judged:
    if quantity.name not in values:
        raise ItemError(f"{item.key}: its function does not return {quantity.name!r}; it returns {sorted(values)}")
    value = values[quantity.name]
    quantity = replace(quantity, published=_as_text(values.get(f"{quantity.name}_published")) or quantity.published)
    try:
        as_expected = quantity.expect is None or holds(quantity.expect, value)
        if quantity.test is None:
            return Judged(quantity, value, as_expected, "")
        if item.is_experiment:
            comparisons = _trends(item, quantity, values)
            return Judged(quantity, value, as_expected, most(comparisons), comparisons)
        return Judged(quantity, value, as_expected, _compare(quantity.test, value))
    except ValueError as problem:
        raise ItemError(f"{item.key}, {quantity.name}: {problem}") from problem


def _trends(item: Item, quantity: Quantity, values: Mapping[str, Value]) -> tuple[str, ...]:
    assert quantity.test is not None
    if quantity.error and quantity.error != UNKNOWN and quantity.error not in values:
        raise ItemError(f"{item.key}: its function does not return {quantity.error!r}; it returns {sorted(values)}")
    error = None if not quantity.error else values.get(quantity.error, math.nan)
    return trends(quantity.test, values[quantity.name], error, quantity.published)


def _as_text(published: Value | None) -> str | list[str] | None:
    if published is None:
        return None
    texts = ["–" if shown(entry) == "nan" else shown(entry) for entry in entries(published)]
    return texts if isinstance(published, list | tuple) else texts[0]


def _compare(claim: str | list[str], value: Value) -> str:
    if holds(claim, value):
        return AGREES
    return ROUNDING if holds(claim, value, rounding=True) else DISAGREES


def _verdict(item: Item, judged: tuple[Judged, ...]) -> str:
    """The least favourable verdict of the quantities, unless the items file says that none can be given."""
    if item.verdict == AMBIGUOUS:
        return item.verdict
    found = [j.verdict for j in judged if j.verdict]
    if item.is_experiment:
        return least_favourable(found)
    return max(found, key=_ORDER.index, default=item.verdict)


def _fill(item: Item, values: Mapping[str, Value]) -> str:
    try:
        return item.reason.format(**values)
    except (KeyError, IndexError, ValueError, TypeError) as problem:
        raise ItemError(f"{item.key}: its reason cannot be filled in: {problem!r}") from problem


def _for_json(value: Any) -> Any:
    """JSON has no NaN, no infinity and no tuples: they become words and lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return [_for_json(entry) for entry in value] if isinstance(value, list | tuple) else value
