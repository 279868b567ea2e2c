"""Write the report of a run: one page, or a folder with the page, its pictures, the table in Markdown and the data."""

from __future__ import annotations

from pathlib import Path

from spectralgrad.io.files import write_json, write_text

from . import cost_figure, page, ratio_figure, table
from .stored_outcomes import Run, as_json


def has_pictures(target: Path | None) -> bool:
    """True if the target is a folder, whose pictures need matplotlib."""
    return target is not None and target.suffix != ".html"


def write(target: Path, run: Run) -> None:
    """Write ``target`` if it ends in .html; otherwise into the folder ``target``, which is created.

    The folder has report.html, goals.md, bench.json, cost.png and ratios.png.
    """
    if not has_pictures(target):
        write_text(target, page.render(run))
        return
    target.mkdir(exist_ok=True)
    write_json(target / "bench.json", as_json(run))
    write_text(target / "report.html", page.render(run))
    for (name, _), draw in zip(table.PICTURES, (ratio_figure.ratios, cost_figure.cost), strict=True):
        draw(target / name, run)
    write_text(target / "goals.md", table.as_markdown(run, table.PICTURES))
