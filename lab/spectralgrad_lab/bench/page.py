"""The page of a run: what it says first, the heat map, the curves, and a chart and a table for each group of goals."""

from __future__ import annotations

import math
from typing import Any

from ..report import template
from ..report.axes import Axis
from ..report.figures import Chart, Strip
from ..report.panels import Panel, panels
from ..report.row_charts import scale, span
from . import plotted_series, table
from .goals import BELOW, Row, grid_axes, rows
from .plotted_series import Points
from .stored_outcomes import Run

_TEMPLATE = "bench/bench.html.j2"
_DEEPEST = 60  # per cent of color in the heat map, at a ratio of _DEEP or more
_DEEP = 32.0
_RATIOS = Axis(0.1, 100.0, log=True)  # of all charts; what is beyond is drawn at the end


def render(run: Run) -> str:
    """The page as HTML, self-contained.

    Raises:
        SpectralError: jinja2 is not installed.

    Example:
        >>> from spectralgrad_lab.bench import Case
        >>> from spectralgrad_lab.bench.comparisons import run
        >>> from spectralgrad_lab.bench.stored_outcomes import here
        >>> outcomes = run([("eigh", Case(1, 3, torch.float32))], seconds=0.01)
        >>> "<h1>" in render(here(outcomes, 0.01))
        True
    """
    template.require()
    found = rows(run.outcomes)
    kept = table.columns(found)
    return template.fill(
        _TEMPLATE,
        headline=_headline(found),
        summary=table.summary(found),
        shortfalls=table.shortfalls(found),
        explanation=table.EXPLANATION,
        machine=run.machine,
        seconds=run.seconds,
        busy=(run.machine["load"] or 0) > 0.5,
        heat=_heat(run),
        sizes=_panels(plotted_series.by_size(found), "ratio against size", (3, 16, 64, 256)),
        batches=_panels(plotted_series.by_batch(run.outcomes), "ratio against batch", (1, 16, 256, 4096)),
        header=[table.HEADER[i] for i in kept],
        groups=[_group(title, members, kept) for title, members in table.groups(found).items()],
        cells=len(run.outcomes),
    )


def _headline(found: list[Row]) -> str:
    graded = [row.grade for row in found if row.grade]
    below = graded.count(BELOW)
    if not graded:
        return f"{len(found)} comparisons without a floor"
    return f"{below} of {len(graded)} comparisons are below their floor" if below else "Every cell reaches its floor"


def _heat(run: Run) -> dict[str, Any] | None:
    """Rows of the heat map, one per size; None if no cell was measured."""
    batches, sizes = grid_axes()
    ratios = plotted_series.grid(run.outcomes)
    if not ratios:
        return None
    lines = [{"size": d, "cells": [_heat_cell(ratios.get((b, d))) for b in batches]} for d in sizes]
    return {"batches": batches, "rows": lines}


def _heat_cell(ratio: float | None) -> dict[str, Any]:
    if ratio is None:
        return {"text": "–", "share": 0, "slower": False}
    share = _DEEPEST * min(1.0, abs(math.log(ratio)) / math.log(_DEEP))
    return {"text": plotted_series.short(ratio), "share": round(share), "slower": ratio < 1}


def _panels(lines: dict[str, Points], said: str, ticks: tuple[int, ...]) -> list[Panel]:
    places = [x for points in lines.values() for x, _ in points]
    if not places:
        return []
    x = Axis(0.8 * min(places), 1.5 * max(places), log=True)
    inside = [(float(tick), str(tick)) for tick in ticks if x.low <= tick <= x.high]
    return panels({name: [points] for name, points in lines.items()}, x, _RATIOS, said, inside)


def _group(title: str, members: list[Row], kept: list[int]) -> dict[str, Any]:
    strips = [_strip(row) for row in members]
    lines = [
        {"name": row.name, "cells": [table.line(row)[i] for i in kept], "below": row.grade == BELOW} for row in members
    ]
    return {"title": title, "chart": Chart(strips, scale(_RATIOS, "times faster")), "rows": lines}


def _strip(row: Row) -> Strip:
    """A bar from 1 to the ratio, with the floor and the goal as lines."""
    case, goal = row.outcome.case, row.goal
    apart = [case.precision] if case.precision not in ("float32", *goal.title.split(", ")) else []
    apart += [case.spectrum] if case.spectrum not in ("wishart", "gaussian") else []
    name = " ".join((case.label, *apart))
    ratio = table.ratio(row)
    marks = {figure: kind for figure, kind in ((goal.goal, "mark goal"), (goal.floor, "mark")) if figure is not None}
    said = f"{row.name} against {goal.rival}: {ratio}"
    svg = span(1.0, row.ratio if row.ratio is not None else math.nan, _RATIOS, said, marks, bad=row.grade == BELOW)
    return Strip(name, svg, f"{ratio} × {goal.rival}" if row.ratio is not None else ratio, row.grade == BELOW)
