"""Convergence curves: errors of training runs epoch by epoch, and how far apart two settings are in each epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from ..comparison.results import Summary
from .drawing import COLORS, canvas, dress

TRAIN, TEST, LOSS, TRAIN_LOSS = "train_error", "test_error", "test_loss", "train_loss"


def curves(found: Mapping[str, Summary], names: Sequence[str], what: str) -> list[list[float]]:
    """The mean error over the finished runs in each epoch, by setting; empty for a setting without a finished run.

    Args:
        found: the results of the settings.
        names: of the settings.
        what: a field of :class:`~spectralgrad_lab.training.storage.records.Epoch`.
    """
    return [[_rounded(fmean(epoch)) for epoch in zip(*_by_seed(found[n], what).values(), strict=True)] for n in names]


def apart(one: Summary, other: Summary, what: str) -> tuple[list[float], list[float]]:
    """The difference of two settings in each epoch, paired by seed: means and standard errors."""
    ours, theirs = _by_seed(one, what), _by_seed(other, what)
    pairs = [[a - b for a, b in zip(ours[s], theirs[s], strict=True)] for s in ours if s in theirs]
    epochs = list(zip(*pairs, strict=True))
    return [_rounded(fmean(e)) for e in epochs], [_standard_error(e) for e in epochs]


def moved_apart(one: Summary, other: Summary, what: str) -> tuple[float, float]:
    """How much the difference of two settings grows from the first to the last epoch: mean and standard error."""
    ours, theirs = _by_seed(one, what), _by_seed(other, what)
    grown = [ours[s][-1] - theirs[s][-1] - ours[s][0] + theirs[s][0] for s in ours if s in theirs]
    return _rounded(fmean(grown)), _standard_error(grown)


def unsteadiness(one: Summary, other: Summary, what: str) -> tuple[float, float]:
    """How much more one setting's error or loss rises between epochs, in all, than another's, paired by seed."""
    ours, theirs = ({s: _rises(e) for s, e in _by_seed(found, what).items()} for found in (one, other))
    more = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    return (_rounded(fmean(more)) if more else math.nan), _standard_error(more)


def _rises(errors: Sequence[float]) -> float:
    return sum(max(after - before, 0.0) for before, after in pairwise(errors))


def draw_curves(panels: Mapping[str, Mapping[str, Sequence[float]]], ylabel: str, *, logarithmic: bool = False) -> Any:
    """Panels side by side, with one line per setting.

    Args:
        panels: for each title, the curves by name of the setting; empty curves are left out.
        ylabel: of the first panel.
        logarithmic: draw the values on logarithmic axes.
    """
    figure, axes = canvas(1, len(panels), width=4.0, height=3.2, squeeze=False)
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    looks = {name: _look(number) for number, name in enumerate(names)}
    for place, (title, lines) in zip(axes[0], panels.items(), strict=True):
        for name, line in lines.items():
            if line:
                place.plot(range(1, len(line) + 1), line, label=name, markersize=4, linewidth=1.4, **looks[name])
        longest = max(map(len, lines.values()))
        place.set_xticks(range(1, longest + 1))
        first = place is axes[0][0]
        dress(place, legend=first, xlabel="epoch", **({"ylabel": ylabel} if first else {}))
        place.set_title(title, fontsize=10, loc="left")
        if logarithmic:
            place.set_yscale("log")
    return figure


def _look(number: int) -> dict[str, Any]:
    """A color and marker of a line; the line is dashed where the colors repeat."""
    colors = list(COLORS.values())
    return {"color": colors[number % len(colors)], "linestyle": ("-", "--")[number // len(colors)], "marker": "o"}


def _by_seed(summary: Summary, what: str) -> dict[int, list[float]]:
    return {run.config.seed: [getattr(epoch, what) for epoch in run.epochs] for run in summary.done}


def _standard_error(values: Sequence[float]) -> float:
    return _rounded(stdev(values) / len(values) ** 0.5) if len(values) > 1 else math.nan


def _rounded(value: float) -> float:
    return round(value, 3)
