"""Axes of charts: positions of values, and tick labels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from spectralgrad.diagnostics.table import number

_DECADES = 300  # largest exponent; powers of ten beyond it may underflow to 0 or overflow
_CLOSE = 1e-9
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """A range of numbers on a linear or logarithmic scale.

    Example:
        >>> Axis(0, 10).place(5), Axis(1e-4, 1, log=True).place(1e-2)
        (0.5, 0.5)
        >>> Axis(0, 100).ticks(3)
        [(0.0, '0'), (50.0, '50'), (100.0, '100')]
        >>> [text for _, text in Axis(46, 54).ticks(4)]
        ['46', '48', '50', '52', '54']
    """

    low: float
    high: float
    log: bool = False

    @classmethod
    def around(cls, values: Iterable[float], log: bool = False, zero: bool = False) -> Axis:
        """An axis that contains all finite values, and zero if asked for.

        Example:
            >>> Axis.around([3e-6, 0.5], log=True)
            Axis(low=1e-06, high=1.0, log=True)
            >>> Axis.around([31.0, 38.0])
            Axis(low=30.0, high=38.0, log=False)
        """
        known = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        if not known:
            return cls(0.1, 1.0, True) if log else cls(0.0, 1.0)
        low, high = min(known), max(known)
        if log:
            below = min(max(-_DECADES, math.floor(math.log10(low) + 1e-3)), _DECADES - 1)
            above = min(_DECADES, math.ceil(math.log10(high) - 1e-3))
            return cls(10.0**below, 10.0 ** max(above, below + 1), True)
        low = min(low, 0.0) if zero else low
        size = max(abs(low), abs(high))
        close = high - low < _CLOSE * size  # equal up to rounding
        step = _step((size if close else high - low) if size > 10.0**-_DECADES else 1.0, 4)
        return cls(math.floor(low / step) * step, max(math.ceil(high / step), math.floor(low / step) + 1) * step)

    def place(self, value: float) -> float:
        """Position of a value, from 0 at the low end to 1 at the high end; values outside are clamped."""
        low, high, here = self._scaled(self.low), self._scaled(self.high), self._scaled(value)
        return min(1.0, max(0.0, (here - low) / (high - low)))

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, 10.0**-_DECADES / 10)) if self.log else value

    def ticks(self, count: int = 4) -> list[tuple[float, str]]:
        """About ``count`` round numbers, at least two, with their labels."""
        if self.log:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            every = max(1, math.ceil((last - first) / max(count - 1, 1)))
            return [(10.0**k, power(k)) for k in range(first, last + 1, every)]
        step = _step(self.high - self.low, max(count - 1, 1))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        if first == last:
            return self.ticks(count + 1)
        return [(k * step, f"{round(k * step, 9):g}") for k in range(first, last + 1)]


def power(exponent: int) -> str:
    """The text for a power of ten.

    Example:
        >>> power(-6), power(0), power(1)
        ('10⁻⁶', '1', '10')
    """
    return {0: "1", 1: "10"}.get(exponent, "10" + str(exponent).translate(_RAISED))


def short_number(value: float) -> str:
    """A short text for a number: two digits, powers of ten with superscript exponents.

    Example:
        >>> [short_number(value) for value in (3.2e-6, 0.42, float("nan"), 812.0, 2.9e5)]
        ['3×10⁻⁶', '0.42', '–', '812', '3×10⁵']
    """
    text = "–" if math.isnan(value) else number(value)
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}×10{exponent.translate(_RAISED)}" if e else text


def _step(width: float, parts: int) -> float:
    """A round number close to ``width / parts``."""
    rough = width / parts
    base = 10.0 ** math.floor(math.log10(rough))
    return next(base * factor for factor in (1, 2, 5, 10) if base * factor >= rough * 0.999)
