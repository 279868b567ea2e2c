"""A page in Markdown for each paper, and an index, written from the outcomes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spectralgrad.io.files import write_text

from .conditions import shown
from .items import KINDS, VERDICTS, Item, Paper, papers
from .terminal_text import duration

_TITLES = {"analytic": "Claims", "figure": "Figures", "training": "Training"}


def write_pages(outcomes: Mapping[str, Mapping[str, Any]], results: Path, folder: Path) -> list[Path]:
    """Write the pages of all papers and an index into a folder, and copy the pictures there.

    Args:
        outcomes: what :func:`spectralgrad_lab.papers.outcomes.read_all` found.
        results: the folder they came from; the pictures are there.
        folder: where to write.

    Returns:
        The pages written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"index.md": _index(outcomes)}
    for paper in papers():
        pages[f"{paper.name}.md"] = _page(paper, outcomes, results, folder)
    for name, text in pages.items():
        write_text(folder / name, text)
    return [folder / name for name in pages]


def _index(outcomes: Mapping[str, Mapping[str, Any]]) -> str:
    head = ["paper", *VERDICTS, "not run"]
    rows = [[f"[{paper.title}]({paper.name}.md), {paper.venue}", *_counts(paper.items, outcomes)] for paper in papers()]
    total = [sum(int(row[i]) for row in rows) for i in range(1, len(head))]
    return "\n".join(
        [
            "# The papers, recomputed",
            "",
            "Every table, figure, equation and claim of the five papers as an item: the published number, ours, and a "
            "verdict. The items are run by `spectralgrad reproduce`; this page and the others are written from the "
            "results by `spectralgrad reproduce pages`.",
            "",
            *_table(head, [*rows, ["**all**", *(f"**{count}**" for count in total)]]),
            "",
        ]
    )


def _counts(items: Sequence[Item], outcomes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    counts = Counter(outcomes[item.key]["verdict"] for item in items if item.key in outcomes)
    return [*(str(counts[verdict]) for verdict in VERDICTS), str(sum(item.key not in outcomes for item in items))]


def _page(paper: Paper, outcomes: Mapping[str, Mapping[str, Any]], results: Path, folder: Path) -> str:
    lines = [f"# {paper.title}", "", f"{paper.authors}. {paper.venue}.", "", paper.about, ""]
    for kind in KINDS:
        items = [item for item in paper.items if item.kind == kind]
        if items:
            lines += [f"## {_TITLES[kind]}", ""]
        for item in items:
            lines += _section(item, outcomes.get(item.key), results, folder)
    return "\n".join(lines)


def _section(item: Item, outcome: Mapping[str, Any] | None, results: Path, folder: Path) -> list[str]:
    lines = [f"### {item.id}: {item.place}", "", f"{_sentence(item.claim)}", ""]
    if outcome is None:
        needs = f" It needs {item.needs}." if item.needs else ""
        return [*lines, f"Not run.{needs} `spectralgrad reproduce {item.key}`, about {duration(item.seconds)}.", ""]
    lines += [f"**{outcome['verdict'].capitalize()}.** {outcome['reason']}", ""]
    if item.achieves:
        lines += [item.achieves, ""]
    if outcome["quantities"]:
        lines += [*_table(["", "published", "ours", "verdict"], [_row(q) for q in outcome["quantities"]]), ""]
    picture = results / item.paper / f"{item.id}.svg"
    if picture.exists():
        target = folder / "images" / f"{item.paper}-{item.id}.svg"
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(picture, target)
        lines += [f"![{item.place}: {item.claim}](images/{target.name})", ""]
    if item.command:
        lines += [f"At full size, on a machine with a GPU: `{item.command}`", ""]
    return [*lines, f"`spectralgrad reproduce {item.key}{' --data DIR' if item.needs else ''}`", ""]


def _row(quantity: Mapping[str, Any]) -> list[str]:
    return [quantity["what"], shown(quantity["claim"]), shown(quantity["ours"]), quantity["verdict"] or "–"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [list(head), ["---"] * len(head), *([_escaped(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(row)} |" for row in cells]


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")
