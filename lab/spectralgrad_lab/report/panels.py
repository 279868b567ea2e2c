"""Small multiples: one panel per method, with its lines in color and the other methods' lines in gray."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from .axes import Axis

Line = Sequence[tuple[float, float]]
_WIDTH, _HEIGHT = 220.0, 136.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 38.0, 10.0, 12.0, 22.0


class Panel(NamedTuple):
    """A drawing and its title."""

    title: str
    svg: Markup
    note: str = ""


def panels(
    lines: Mapping[str, Sequence[Line]],
    x: Axis,
    y: Axis,
    said: str,
    x_ticks: Sequence[tuple[float, str]] = (),
    notes: Mapping[str, str] | None = None,
) -> list[Panel]:
    """Draw one panel per name. A value that is not finite is a cross at the top.

    Args:
        lines: name → its lines, each a list of points (x, y).
        x: horizontal axis of all panels.
        y: vertical axis of all panels.
        said: what the panels show, for screen readers.
        x_ticks: positions and texts under the axis (default: chosen by the axis).
        notes: name → a remark under its title.

    Example:
        >>> two = {"a": [[(0, 1.0), (1, 2.0)]], "b": [[(0, 2.0), (1, float("nan"))]]}
        >>> [panel.title for panel in panels(two, Axis(0, 1), Axis(0, 2), "loss")]
        ['a', 'b']
    """
    frame = _frame(x, y, x_ticks or x.ticks(4))
    drawn = {name: "".join(_path(line, x, y) for line in found) for name, found in lines.items()}
    lone = {name: "".join(_points(line, x, y) for line in found if _alone(line)) for name, found in lines.items()}
    found_panels = []
    for name, found in lines.items():
        others = "".join(drawn[other] + lone[other] for other in lines if other != name)
        own = drawn[name] + "".join(_points(line, x, y) for line in found)
        body = f'{frame}<g class="others">{others}</g><g class="own">{own}</g>'
        label = escape(f"{said}, {name}")
        svg = f'<svg class="panel" role="img" aria-label="{label}" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}">{body}</svg>'
        found_panels.append(Panel(name, Markup(svg), (notes or {}).get(name, "")))
    return found_panels


def _px(axis: Axis, value: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * axis.place(value)


def _py(axis: Axis, value: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * axis.place(value)


def _frame(x: Axis, y: Axis, x_ticks: Sequence[tuple[float, str]]) -> str:
    body = ""
    for value, text in y.ticks(4):
        here = _py(y, value)
        body += f'<line class="grid" x1="{_LEFT:g}" x2="{_WIDTH - _RIGHT:g}" y1="{here:.1f}" y2="{here:.1f}"/>'
        body += f'<text x="{_LEFT - 5:g}" y="{here + 3.5:.1f}" text-anchor="end">{text}</text>'
    for value, text in x_ticks:
        body += f'<text x="{_px(x, value):.1f}" y="{_HEIGHT - 6:g}" text-anchor="middle">{text}</text>'
    return f'<g class="axes">{body}</g>'


def _path(line: Line, x: Axis, y: Axis) -> str:
    """The line, broken where a value is missing."""
    steps, pen = [], "M"
    for across, up in line:
        if not math.isfinite(up):
            pen = "M"
            continue
        steps.append(f"{pen}{_px(x, across):.1f} {_py(y, up):.1f}")
        pen = "L"
    return f'<path d="{"".join(steps)}"/>' if steps else ""


def _alone(line: Line) -> bool:
    """True for a single point, which has no path."""
    return len(line) == 1 and math.isfinite(line[0][1])


def _points(line: Line, x: Axis, y: Axis) -> str:
    body = ""
    for across, up in line:
        here = _px(x, across)
        if math.isfinite(up):
            body += f'<circle cx="{here:.1f}" cy="{_py(y, up):.1f}" r="2.6"/>'
        else:
            a, b, c, d = here - 4, here + 4, _TOP - 7, _TOP + 1
            body += f'<path class="cross" d="M{a:.1f} {c:.1f}L{b:.1f} {d:.1f}M{a:.1f} {d:.1f}L{b:.1f} {c:.1f}"/>'
    return body
