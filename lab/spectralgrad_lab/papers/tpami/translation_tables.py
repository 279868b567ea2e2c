"""Tables 8 and 9 at small size: do translated photographs pass for paintings, and how sharp are they?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import nan
from typing import Any

from ...published.printed import printed
from ..drawing import COLORS, canvas, dress
from ..registry import draws, trains
from ..training import Task, Training
from ..value_conditions import Value
from .translated_pictures import DOMAINS, METHODS, learn, tasks

TABLE_8, TABLE_9 = printed("tpami")["table-8"], printed("tpami")["table-9"]
STYLE = "Vangogh"  # who painted the paintings
TABLE = "tpami/training-table-8"


def runs(train: Training) -> dict[str, Task]:
    """What was measured of each method; what is not there yet is trained, in the folder ``runs`` of Table 8's item."""
    training, planned = train.of(TABLE), tasks()
    found = training.each(partial(learn, str(training.folder / "runs")), planned)
    return {task["method"]: result for task, result in zip(planned, found, strict=True)}


def measure(found: Mapping[str, Task], name: str) -> dict[str, list[float]]:
    """A measure of real pictures of both domains and, by method, of translations to each; NaN if a run failed."""
    (first, *_), names = found.values(), list(DOMAINS.values())
    values = {"real": [first["real"][domain][name] for domain in names]}
    for domain in names:
        made = [found[method]["translated"][domain] for method in METHODS]
        values[f"to_{domain}"] = [nan if scores is None else scores[name] for scores in made]
    return values


def shared(found: Mapping[str, Task]) -> dict[str, Value]:
    """What both tables say about the runs."""
    (first, *_) = found.values()
    failed = [f"{method}: {result['failure']}" for method, result in found.items() if result["failure"]]
    return {
        "methods": list(METHODS),
        "held_out": [first["pictures"][domain] for domain in DOMAINS.values()],
        "crops": first["crops"],
        "cycle": [round(result["losses"].get("cycle", nan), 3) for result in found.values()],
        "failures": "; ".join(failed) or "none",
        "train_seconds": round(sum(result["seconds"] for result in found.values()), 1),
    }


def published(rows: Mapping[str, Any], style: int) -> list[float]:
    """The printed numbers of a style in the order of the methods; ``exact`` has none."""
    return [float(rows[method.lower()][style]) if method.lower() in rows else nan for method in METHODS]


@trains(TABLE)
def accuracies(train: Training) -> Mapping[str, Value]:
    """The share of crops that the classifier takes for pictures of a domain, beside the printed ones of Van Gogh."""
    found, columns = runs(train), TABLE_8["columns"]
    rows = {name: row["accuracy"] for name, row in TABLE_8.items() if isinstance(row, dict)}
    values = measure(found, "accuracy")
    original = rows["original"]
    return {
        **shared(found),
        **values,
        "real_published": [original[columns.index("Real Photo")], original[columns.index(STYLE)]],
        "to_paintings_published": published(rows, columns.index(STYLE)),
        "untranslated": round(100 - values["real"][0], 2),
        "ahead": values["to_paintings"][1] - values["to_paintings"][0],
    }


@trains("tpami/training-table-9")
def sharpnesses(train: Training) -> Mapping[str, Value]:
    """The mean sharpness of crops, beside the printed ones of Van Gogh."""
    found = runs(train)
    values = measure(found, "sharpness")
    return {
        **shared(found),
        **values,
        "to_paintings_published": published(TABLE_9["rows"], TABLE_9["columns"].index(STYLE)),
        "ahead": values["to_paintings"][1] - values["to_paintings"][0],
    }


def _bars(values: Mapping[str, Any], label: str, top: float | None = None) -> Any:
    """A panel per direction: a bar per method, a line for real pictures, crosses for what is printed."""
    figure, axes = canvas(1, 2, width=4.4, height=3.2, sharey=True)
    for place, domain, real in zip(axes, DOMAINS.values(), values["real"], strict=True):
        heights = range(len(values["methods"]))
        place.bar(heights, values[f"to_{domain}"], 0.6, color=COLORS["sky"], label="translated, 64×64")
        place.axhline(real, color=COLORS["black"], linestyle="--", linewidth=1, label=f"real {domain}")
        if f"to_{domain}_published" in values:
            place.plot(heights, values[f"to_{domain}_published"], "x", color=COLORS["red"], label="printed, Van Gogh")
        place.set_xticks(heights, values["methods"])
        dress(place, ylabel=label, legend="lower right")
        place.set_ylim(0, top)
        place.set_title(f"to {domain}", fontsize=10, loc="left")
    return figure


@draws(TABLE)
def draw_accuracies(values: Mapping[str, Any]) -> Any:
    """Accuracies of both directions."""
    return _bars(values, "taken for the domain, per cent", 105)


@draws("tpami/training-table-9")
def draw_sharpnesses(values: Mapping[str, Any]) -> Any:
    """Sharpness of both directions."""
    return _bars(values, "levels per pixel")
