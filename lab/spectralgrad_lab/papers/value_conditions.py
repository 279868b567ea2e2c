"""Conditions on a number, written as text: what a paper prints, and what a computation must give."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

Value: TypeAlias = "float | bool | str | Sequence[Value]"
"""A computed value: a number, a truth value, a word, or a list of these."""

ANY = "any"
"""The condition that says nothing, for entries of a list about which a statement says nothing."""
MANY = 8  # longer lists are summarized
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf|nan)"
_COMPARED = re.compile(rf"(<=|>=|<|>)\s*({_NUMBER})")
_RANGE = re.compile(rf"({_NUMBER})\s*\.\.\s*({_NUMBER})")
_TOLERANCE = re.compile(rf"({_NUMBER})\s*±\s*({_NUMBER})\s*(%?)")
_PRINTED = re.compile(_NUMBER)
_ROUGHLY = re.compile(rf"(.*\S)\s*~\s*({_NUMBER})")


@dataclass(frozen=True)
class Interval:
    """The numbers that satisfy a condition, and those that nearly do.

    Attributes:
        low, high: the ends of the interval.
        open: whether the ends are excluded.
        slack: how far outside a number may lie to agree up to rounding.
    """

    low: float
    high: float
    open: bool = False
    slack: float = 0.0

    def holds(self, value: float, slack: float = 0.0) -> bool:
        """Whether a number lies in the interval, widened by ``slack``."""
        if math.isnan(self.low):
            return math.isnan(value)
        if self.open and not slack:
            return self.low < value < self.high
        return self.low - slack <= value <= self.high + slack


def parse(text: str) -> Interval:
    """The interval of a condition on a number.

    ========================= =====================================================================
    ``< 1e-12``, ``>= 0.5``   a bound
    ``1e-4 .. 2e-3``          from … to …
    ``5.7051 ± 1e-3``         a value with its tolerance, absolute or in per cent (``4.5e17 ± 1 %``)
    ``5.71``                  a printed number: everything that rounds to it; within one unit of the
                              last printed digit a number agrees up to rounding
    ``<= 0.05 ~ 0.01``        any of these, and how far outside a number still agrees up to rounding
    ========================= =====================================================================

    Raises:
        ValueError: the text is none of these.

    Example:
        >>> parse("5.71").holds(5.7051), parse("5.71").holds(5.72), parse("5.7051 ± 1e-3").holds(5.706)
        (True, False, True)
        >>> parse("4.5e17").slack, parse("<= 0.05 ~ 0.01").slack
        (5000000000000000.0, 0.01)
    """
    text = text.strip()
    if match := _ROUGHLY.fullmatch(text):
        return replace(parse(match[1]), slack=float(match[2]))
    if match := _COMPARED.fullmatch(text):
        sign, bound = match[1], float(match[2])
        low, high = (-math.inf, bound) if sign[0] == "<" else (bound, math.inf)
        return Interval(low, high, open=len(sign) == 1)
    if match := _RANGE.fullmatch(text):
        return Interval(float(match[1]), float(match[2]))
    if match := _TOLERANCE.fullmatch(text):
        value, width = float(match[1]), float(match[2])
        width *= abs(value) / 100 if match[3] else 1
        return Interval(value - width, value + width)
    if _PRINTED.fullmatch(text):
        value, unit = float(text), last_digit(text)
        half = unit / 2 * (1 + 1e-9) if math.isfinite(unit) else 0.0  # 0.5 itself may round either way
        return Interval(value - half, value + half, slack=unit / 2) if math.isfinite(value) else Interval(value, value)
    raise ValueError(
        f"expected a condition such as '< 1e-12', '0.1 .. 0.2', '5.7051 ± 1e-3', '5.71', 'yes' or '= text', "
        f"got {text!r}"
    )


def last_digit(printed: str) -> float:
    """The unit of the last digit of a printed number.

    Example:
        >>> last_digit("5.71"), last_digit("6.00e36"), last_digit("200")
        (0.01, 1e+34, 1.0)
    """
    digits, _, exponent = printed.lower().partition("e")
    return float(f"1e{int(exponent or 0) - len(digits.partition('.')[2])}")


def holds(condition: str | Sequence[str], value: Value, rounding: bool = False) -> bool:
    """Whether a value satisfies a condition; lists are compared entry by entry, and an empty one satisfies none.

    Args:
        condition: ``"yes"``, ``"no"``, ``"= text"``, ``"any"``, a condition on a number as in :func:`parse`, or a list
            of them.
        value: the computed value.
        rounding: allow one unit of the last digit of printed numbers; whole numbers are counts and allow none.

    Raises:
        ValueError: the condition cannot be read, or does not fit the value.

    Example:
        >>> holds("yes", True), holds("< 1e-12", 3e-14), holds("= inf", "inf"), holds(["2", "3"], [2, 4])
        (True, True, True, False)
        >>> holds("817", 817.8), holds("817", 817.8, rounding=True)
        (False, True)
        >>> holds("14", 13.4, rounding=True), holds("14", 13, rounding=True)
        (True, False)
    """
    if condition == ANY:
        return True
    if isinstance(condition, str) and isinstance(value, Sequence) and not isinstance(value, str):
        return bool(value) and all(holds(condition, entry, rounding) for entry in value)
    if not isinstance(condition, str):
        if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != len(condition):
            raise ValueError(f"expected {len(condition)} values for the conditions {condition}, got {value!r}")
        return all(holds(c, entry, rounding) for c, entry in zip(condition, value, strict=True))
    if condition in ("yes", "no"):
        if not isinstance(value, bool):
            raise ValueError(f"expected a truth value for the condition {condition!r}, got {value!r}")
        return value == (condition == "yes")
    if condition.startswith("= "):
        return value == condition[2:].strip()
    interval = parse(condition)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a number for the condition {condition!r}, got {value!r}")
    return interval.holds(float(value), interval.slack if rounding and isinstance(value, float) else 0.0)


def entries(value: Value) -> list[Value]:
    """The entries of a list, or a single value as a list."""
    return [value] if isinstance(value, str) or not isinstance(value, Sequence) else list(value)


def shown(value: Value) -> str:
    """A value as a cell shows it; a list of more than eight numbers by its range.

    Example:
        >>> shown(True), shown(0.000123456), shown([1, 2.5])
        ('yes', '0.0001235', '1, 2.5')
        >>> shown([0.5, 0.1, float("nan")] * 3)
        '9 values: 0.1 to 0.5, 3 × nan'
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:.4g}" if isinstance(value, float) else str(value)
    if isinstance(value, str):
        return value
    numbers = [entry for entry in value if isinstance(entry, int | float)]
    if len(value) > MANY and len(numbers) == len(value):
        return f"{len(value)} values: {_range(numbers)}"
    return ", ".join(shown(entry) for entry in value)


def _range(numbers: Sequence[float]) -> str:
    ordered = sorted(n for n in numbers if not math.isnan(n))
    missing = sum(math.isnan(n) for n in numbers)
    same = not ordered or ordered[0] == ordered[-1]
    parts = [shown(ordered[0]) if same else f"{shown(ordered[0])} to {shown(ordered[-1])}"] if ordered else []
    return ", ".join(parts + ([f"{missing} × nan"] if missing else []))
