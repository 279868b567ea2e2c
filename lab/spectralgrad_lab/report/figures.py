"""The charts of the report, from results and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from ..comparison.gradient_errors import GradientErrors
from ..comparison.results import Summary
from ..training.storage.records import Epoch, Result
from .axes import Axis, short_number
from .panels import Panel, panels
from .published_cells import paper_cell
from .row_charts import bar, dots, scale, stack

_TIE = 3e-9  # where a gap of zero stands on a logarithmic axis


class Strip(NamedTuple):
    """A row of a chart: name, drawing, value as text, and whether to mark it as bad."""

    name: str
    svg: Markup
    text: str
    bad: bool = False


class Chart(NamedTuple):
    """Rows with a common axis."""

    rows: list[Strip]
    scale: Markup


def success(summaries: Sequence[Summary], marked: bool) -> Chart:
    """Share of finished runs; if ``marked``, a vertical line shows the success rate of the paper."""
    axis, rows = Axis(0, 100), []
    for s in summaries:
        paper = paper_cell(s) if marked else None
        text = f"{len(s.done)} of {len(s.results)}"
        mark = paper.success if paper else math.nan
        rows.append(
            Strip(
                s.name, bar(s.success, axis, f"{s.name}: {text} runs", mark, bad=bool(s.failed)), text, bool(s.failed)
            )
        )
    return Chart(rows, scale(axis, "per cent"))


def errors(summaries: Sequence[Summary]) -> Chart:
    """Test error after the last epoch, one dot per run."""
    axis = Axis.around(e for s in summaries for e in s.errors)
    rows = []
    for s in summaries:
        text = "no run finished" if not s.errors else f"{s.mean:.2f} %"
        rows.append(Strip(s.name, dots(s.errors, axis, f"{s.name}: {text}", s.mean), text, not s.errors))
    return Chart(rows, scale(axis, "test error in per cent"))


def times(summaries: Sequence[Summary]) -> Chart:
    """Median time of a training step."""
    axis = Axis.around((s.step_ms for s in summaries), zero=True)
    plain = next((s.step_ms for s in summaries if s.label == "batchnorm" and s.step_ms > 0), math.nan)
    rows = []
    for s in summaries:
        text = "–" if math.isnan(s.step_ms) else f"{s.step_ms:.0f} ms"
        if not math.isnan(s.step_ms / plain) and s.label != "batchnorm":
            text += f", {s.step_ms / plain:.2f}×"
        rows.append(Strip(s.name, bar(s.step_ms, axis, f"{s.name}: {text}"), text))
    return Chart(rows, scale(axis, "milliseconds"))


def layer_errors(gradients: GradientErrors) -> Chart:
    """Error of the gradient on the matrices of the trained layer."""
    found = gradients.layer or {}
    axis = Axis.around(found.values(), log=True)
    rows = []
    for name, error in found.items():
        bad = bool(gradients.missing[name])
        text = f"{short_number(error)}{_missing(gradients, name)}"
        values = [error, math.nan] if bad and math.isfinite(error) else [error]
        rows.append(Strip(name, dots(values, axis, f"{name}: {text}", bad=bad), text, bad))
    return Chart(rows, scale(axis, "relative error of the gradient"))


def spectrum(values: Sequence[float], said: str) -> Chart:
    """Eigenvalues on a logarithmic axis, close ones stacked; those that are not positive are at the low end."""
    axis = Axis.around(values, log=True)
    if min(values) <= 0:
        axis = Axis(axis.low / 10, axis.high, log=True)
    return Chart([Strip("", stack(values, axis, said), "")], scale(axis, "eigenvalue"))


def curves(results: Sequence[Summary], of: Callable[[Epoch], float], said: str, log: bool = False) -> list[Panel]:
    """A value over the epochs, with one panel per method and one line per run; empty if no run has the value."""
    lines: dict[str, list[list[tuple[float, float]]]] = {}
    failed: dict[str, list[Result]] = {}
    for s in results:
        lines.setdefault(s.method, []).extend(_line(r, of) for r in s.results if r.epochs)
        failed.setdefault(s.method, []).extend(s.failed)
    values = [up for found in lines.values() for line in found for _, up in line]
    if not any(map(math.isfinite, values)):
        return []
    last = max(int(across) for found in lines.values() for line in found for across, _ in line)
    notes = {name: _failed(runs) for name, runs in failed.items() if runs}
    kept = {name: found for name, found in lines.items() if any(map(_known, found)) or name in notes}
    x = Axis(1, last) if last > 1 else Axis(0, 2)  # puts a single epoch in the middle
    return panels(kept, x, Axis.around(values, log=log), said, _epochs(last), notes)


def gaps(gradients: GradientErrors) -> list[Panel]:
    """Error of the gradient against the gap between eigenvalues, one panel per method."""
    places = [gap or _TIE for gap in gradients.gaps]
    lines = {name: [list(zip(places, errors, strict=True))] for name, errors in gradients.at_gaps.items()}
    y = Axis.around((e for errors in gradients.at_gaps.values() for e in errors), log=True)
    x = Axis(1 / max(places), 1 / min(places), log=True)
    turned = {name: [[(1 / across, up) for across, up in line] for line in found] for name, found in lines.items()}
    ticks = [(1 / gap, text) for gap, text in ((1e-1, "0.1"), (1e-3, "10⁻³"), (1e-5, "10⁻⁵"), (1e-7, "10⁻⁷"))]
    return panels(turned, x, y, "gradient error against the gap", [*ticks, (1 / _TIE, "tie")])


def _line(result: Result, of: Callable[[Epoch], float]) -> list[tuple[float, float]]:
    return [(epoch.epoch + 1, of(epoch)) for epoch in result.epochs]


def _known(line: Sequence[tuple[float, float]]) -> bool:
    return any(math.isfinite(up) for _, up in line)


def _missing(gradients: GradientErrors, name: str) -> str:
    lost = gradients.missing[name]
    return f", none on {lost} of {gradients.matrices}" if lost else ""


def _failed(runs: Sequence[Result]) -> str:
    """How many runs failed, and when.

    Example:
        >>> from spectralgrad_lab import Config, Failure
        >>> _failed([Result(Config(seed=k), "failed", failure=Failure(k, 0, "no gradient")) for k in (0, 1)])
        '2 runs failed, steps 0 and 1'
    """
    steps = sorted({result.failure.step for result in runs if result.failure})
    if len(runs) == 1:
        return f"failed at step {steps[0]}" if steps else "failed"
    between = " and " if len(steps) == 2 else " to "
    when = f", steps {steps[0]}{between}{steps[-1]}" if len(steps) > 1 else f" at step {steps[0]}" if steps else ""
    return f"{len(runs)} runs failed{when}"


def _epochs(last: int) -> list[tuple[float, str]]:
    step = max(1, round((last - 1) / 3))
    return [(epoch, str(epoch)) for epoch in range(1, last + 1, step)]
