"""Charts of one row: bars and dots on a common axis. Positions are percentages: text keeps its size on a phone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from .axes import Axis, short_number
from .ties import ties

_ROW, _AXIS = 24, 22
_EDGE = 2.0  # per cent left free at both ends, so that a dot at the end is not cut off


def _x(axis: Axis, value: float) -> str:
    return f"{_EDGE + (100 - 2 * _EDGE) * axis.place(value):.2f}%"


def _svg(height: float, body: str, said: str) -> Markup:
    return Markup(f'<svg class="strip" role="img" aria-label="{escape(said)}" height="{height:g}">{body}</svg>')


def bar(value: float, axis: Axis, said: str, mark: float = math.nan, bad: bool = False) -> Markup:
    """A bar from the low end of the axis; ``mark`` is a second value, drawn as a vertical line.

    Example:
        >>> "<rect" in bar(3.0, Axis(0, 10), "3 of 10")
        True
    """
    return span(axis.low, value, axis, said, {mark: "mark"}, bad)


def span(start: float, end: float, axis: Axis, said: str, marks: Mapping[float, str], bad: bool = False) -> Markup:
    """A bar between two values in either order; ``marks`` are further values, drawn as vertical lines of a class.

    Example:
        >>> svg = span(1.0, 0.5, Axis(0.1, 10, log=True), "half", {0.8: "mark"}, bad=True)
        >>> svg.count("<rect"), svg.count("bar bad"), svg.count('class="mark"')
        (1, 1, 1)
    """
    body = _grid(axis, _ROW)
    if not math.isnan(end):
        low, high = sorted((axis.place(start), axis.place(end)))
        kind = "bar bad" if bad else "bar"
        x, width = _EDGE + (100 - 2 * _EDGE) * low, (100 - 2 * _EDGE) * (high - low)
        body += f'<rect class="{kind}" x="{x:.2f}%" y="5" width="{width:.2f}%" height="14" rx="2"/>'
    for value, own in marks.items():
        for kind in ("halo", own) if not math.isnan(value) else ():
            body += f'<line class="{kind}" x1="{_x(axis, value)}" x2="{_x(axis, value)}" y1="1" y2="23"/>'
    return _svg(_ROW, body, said)


def dots(values: Sequence[float], axis: Axis, said: str, mean: float = math.nan, bad: bool = False) -> Markup:
    """One dot per value and a line at the mean; a value that is not finite is a cross at the high end.

    ``bad`` dots are red rings: some values behind them are missing.

    Example:
        >>> dots([1.0, 2.0, float("nan")], Axis(0, 10), "three").count("<circle")
        2
    """
    body = _grid(axis, _ROW)
    if math.isfinite(mean) and len(values) > 1:
        body += f'<line class="mean" x1="{_x(axis, mean)}" x2="{_x(axis, mean)}" y1="4" y2="20"/>'
    kind = "dot bad" if bad else "dot"
    for value in values:
        if math.isfinite(value):
            title = f"<title>{short_number(value)}</title>"
            body += f'<circle class="{kind}" cx="{_x(axis, value)}" cy="12" r="4.5">{title}</circle>'
        else:
            body += '<text class="lost" x="98%" y="17" text-anchor="end">× none</text>'
    return _svg(_ROW, body, said)


def scale(axis: Axis, said: str = "axis") -> Markup:
    """The numbers under a column of strips."""
    body = "".join(
        f'<text x="{_x(axis, value)}" y="15" text-anchor="{_anchor(axis, value)}">{text}</text>'
        for value, text in axis.ticks()
    )
    return _svg(_AXIS, body, said)


def stack(values: Sequence[float], axis: Axis, said: str, height: float = 88.0) -> Markup:
    """One dot per value; dots at the same position are stacked, and tied values are red.

    Example:
        >>> svg = stack([0.01] * 7 + [0.0101, 1.0], Axis(1e-2, 1, log=True), "nine")
        >>> svg.count("<circle"), svg.count("tied")
        (9, 7)
    """
    tied = {value for group in ties(values) for value in group}
    piles: dict[int, list[str]] = {}
    for value in sorted(values, key=lambda value: value not in tied):
        piles.setdefault(round(100 * axis.place(value)), []).append("dot tied" if value in tied else "dot")
    most = max(map(len, piles.values()), default=1)
    step = min(9.0, (height - 12) / most)
    base = step * (most - 1) + 8
    body = _grid(axis, base + 6)
    for place, kinds in sorted(piles.items()):
        x = f"{_EDGE + (100 - 2 * _EDGE) * place / 100:.2f}%"
        for k, kind in enumerate(kinds):
            body += f'<circle class="{kind}" cx="{x}" cy="{base - k * step:.1f}" r="4"/>'
    return _svg(base + 6, body, said)


def _grid(axis: Axis, height: float) -> str:
    return "".join(
        f'<line class="grid" x1="{_x(axis, v)}" x2="{_x(axis, v)}" y1="0" y2="{height:g}"/>' for v, _ in axis.ticks()
    )


def _anchor(axis: Axis, value: float) -> str:
    place = axis.place(value)
    return "start" if place < 0.04 else "end" if place > 0.96 else "middle"
