"""Verdicts on experiments at small size: is a difference there, in the paper's direction, and could it have been seen?

A difference counts if it exceeds two standard errors. Chance alone exceeds them in one of five or six comparisons of
three runs each, half of them in the paper's direction, so a single comparison proves little.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from .value_conditions import ANY, Value, entries, holds, parse
from .verdicts import NOT_SEEN, OPPOSITE, REPRODUCED, TOO_SMALL

STANDARD_ERRORS = 2
_LEAST_FAVOURABLE = (OPPOSITE, NOT_SEEN, REPRODUCED, TOO_SMALL)


def trend(test: str, value: Value, error: float | None = None, published: float = math.nan) -> str:
    """The verdict on one value.

    Args:
        test: what the paper's statement says about it; a bound such as ``"> 0"`` if there is a standard error.
        value: what was measured.
        error: its standard error, NaN if it is unknown; None if the value has none, such as a count.
        published: the published size of the effect, NaN if the paper prints none.

    Returns:
        A verdict. Within two standard errors of the bound it is ``"not seen"`` if an effect of the published size would
        have been seen, otherwise ``"too small to tell"``. A condition that says nothing has the empty verdict.

    Example:
        >>> trend("> 0", 10.2, 1.9), trend("> 0", -1.6, 0.3), trend("> 0", 0.1, 0.3, 0.9), trend("> 0", 0.1, 0.3, 0.2)
        ('direction reproduced', 'opposite', 'not seen', 'too small to tell')
        >>> trend("< 50", 100.0), trend("> 0", 20.0, float("nan"))
        ('not seen', 'too small to tell')
    """
    if test == ANY:
        return ""
    if error is None:
        return REPRODUCED if holds(test, value) else NOT_SEEN
    if not isinstance(value, int | float) or math.isnan(value) or math.isnan(error):
        return TOO_SMALL
    interval, margin = parse(test), STANDARD_ERRORS * error
    ahead = value - interval.low if math.isinf(interval.high) else interval.high - value
    if abs(ahead) > margin:
        return REPRODUCED if ahead > 0 else OPPOSITE
    return NOT_SEEN if abs(published) > margin else TOO_SMALL


def trends(test: str | Sequence[str], value: Value, error: Value | None, published: Value | None) -> tuple[str, ...]:
    """The verdicts on the entries of a value, each with its standard error and its published size."""
    values = entries(value)
    tests = [test] * len(values) if isinstance(test, str) else test
    errors = [None] * len(values) if error is None else [_number(e) for e in _spread(error, len(values))]
    sizes = [_number(size) for size in _spread(math.nan if published is None else published, len(values))]
    return tuple(trend(*one) for one in zip(tests, values, errors, sizes, strict=True))


def smallest_effects(error: Value) -> list[Value]:
    """The differences that would have been seen, given standard errors.

    Example:
        >>> smallest_effects([0.25, 1.0])
        [0.5, 2.0]
    """
    return [STANDARD_ERRORS * _number(one) for one in entries(error)]


def most(verdicts: Sequence[str]) -> str:
    """The verdict of most comparisons; those too small to tell count only if there is no other.

    Example:
        >>> most(["opposite", "too small to tell", "direction reproduced", "direction reproduced"])
        'direction reproduced'
    """
    counts = Counter(verdict for verdict in verdicts if verdict and verdict != TOO_SMALL)
    return max(
        counts, key=lambda v: (counts[v], -_LEAST_FAVOURABLE.index(v)), default=TOO_SMALL if any(verdicts) else ""
    )


def least_favourable(verdicts: Sequence[str]) -> str:
    """The verdict of an item from its values: the least favourable one that tells something.

    Example:
        >>> least_favourable(["direction reproduced", "too small to tell", "not seen"])
        'not seen'
    """
    return min((verdict for verdict in verdicts if verdict), key=_LEAST_FAVOURABLE.index, default=TOO_SMALL)


def tally(verdicts: Sequence[str]) -> str:
    """How the comparisons behind a verdict came out, if they differ.

    Example:
        >>> tally(["opposite", "direction reproduced", "direction reproduced"]), tally(["not seen", "not seen"])
        ('2 of 3; opposite: 1', '')
    """
    counts, first = Counter(verdict for verdict in verdicts if verdict), most(verdicts)
    if len(counts) < 2:
        return ""
    others = "; ".join(
        f"{verdict}: {counts[verdict]}" for verdict in _LEAST_FAVOURABLE if counts[verdict] and verdict != first
    )
    return f"{counts[first]} of {counts.total()}; {others}"


def _spread(value: Value, count: int) -> Sequence[Value]:
    """A list as it is; anything else once for each entry."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else [value] * count


def _number(value: Value) -> float:
    """A number, also one that is printed as text; NaN for words."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan
