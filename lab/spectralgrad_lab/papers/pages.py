"""A page in Markdown for each paper, and an index, written from the outcomes."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from spectralgrad.io.files import write_text

from .conditions import shown
from .items import KINDS, Item, Paper, papers
from .judging import Judged, Outcome
from .markdown import capital, plain, sentence, table, verdict
from .outcomes import draw, file_of
from .registry import draw_of
from .terminal_text import counted, duration, shown_condition
from .verdicts import MEANINGS, VERDICTS

_TITLES = {"analytic": "Claims", "figure": "Figures", "training": "Training"}
_INDEX = """\
# The papers, recomputed

Every table, figure, equation and claim of the papers is an item that `spectralgrad reproduce` runs: what the paper
states, what we compute, a verdict and a reason. `spectralgrad reproduce --help` shows how to run them. These pages are
written from stored results by `spectralgrad reproduce pages`.
"""
_NOTE = """\
The verdict of an item is the least favorable one of its values. It is about a statement as printed, not about a method:
where a statement fails, the item says what the method achieves nevertheless.
"""
_OWN = """\
The first page is about our own statements, which the papers' claims are measured by. The others are the papers'.
"""
_HOW_TO_READ = """\
Each item has the statement, the verdict with its reason, the computed values and the command that computes them. The
column *if the claim holds* is the condition that the statement puts on a value: a printed number, or what follows from
the statement, such as < 1e-12 for the two sides of an equation. A dash means that the paper says nothing about this
value; it is there to explain. *Expected* is what a correct computation gives, with its tolerance; the tests check it.
[What the verdicts mean](index.md#verdicts)."""


def write_pages(outcomes: Mapping[str, Outcome], results: Path, folder: Path, pictures: bool = True) -> list[Path]:
    """Write the pages of all papers and an index into a folder, and draw the pictures there.

    Args:
        outcomes: what :func:`spectralgrad_lab.papers.outcomes.read_all` found.
        results: the folder they came from; the pages link to its files.
        folder: where to write.
        pictures: whether to draw the pictures too.

    Returns:
        The pages written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if pictures:
        for outcome in outcomes.values():
            draw(outcome, folder / _picture(outcome.item))
    link = Path(os.path.relpath(results, folder))
    pages = {"index.md": _index(outcomes)}
    pages.update((f"{paper.name}.md", _page(paper, outcomes, link)) for paper in papers())
    for name, text in pages.items():
        write_text(folder / name, text)
    return [folder / name for name in pages]


def _picture(item: Item) -> Path:
    return Path("images", f"{item.paper}-{item.id}.svg")


def _index(outcomes: Mapping[str, Outcome]) -> str:
    counts = [_counts(paper.items, outcomes) for paper in papers()]
    names = [f"[{plain(paper.title)}]({paper.name}.md)<br>{plain(paper.venue)}" for paper in papers()]
    total = sum(counts, Counter())
    columns = [name for name in (*VERDICTS, "not run") if total[name]]
    rows = [
        [name, *(str(count[c]) for c in columns), str(count.total())] for name, count in zip(names, counts, strict=True)
    ]
    rows.append(["**all**", *(f"**{total[c]}**" for c in columns), f"**{total.total()}**"])
    head = ["", *(verdict(c) if c in VERDICTS else c for c in columns), "items"]
    numbered = [item for paper in papers() for item in paper.items if item.is_numbered]
    claims = f"Of these, {len(numbered)} are numbered claims: {counted(_counts(numbered, outcomes))}.\n"
    meanings = [[verdict(name), plain(meaning)] for name, meaning in MEANINGS.items()]
    return "\n".join(
        [_INDEX, *table(head, rows), claims, _OWN, "## Verdicts", "", *table(["verdict", "meaning"], meanings), _NOTE]
    )


def _counts(items: Sequence[Item], outcomes: Mapping[str, Outcome]) -> Counter[str]:
    return Counter(outcomes[item.key].verdict if item.key in outcomes else "not run" for item in items)


def _page(paper: Paper, outcomes: Mapping[str, Outcome], results: Path) -> str:
    counts = _counts(paper.items, outcomes)
    lines = [
        f"# {plain(paper.title)}",
        "",
        "".join(f"{plain(line)}. " for line in (paper.authors, paper.venue) if line).rstrip(),
        "",
        plain(paper.about),
        "",
    ]
    lines += [f"{len(paper.items)} items: {counted(counts)}.", "", _HOW_TO_READ, "", "## Overview", ""]
    rows = [[f"[{i.id}](#{i.id.lower()})", plain(i.place), plain(i.claim), _found(i, outcomes)] for i in paper.items]
    lines += table(["item", "place", "claim", "verdict"], rows)
    for kind in KINDS:
        items = [item for item in paper.items if item.kind == kind]
        lines += [f"## {_TITLES[kind]}", ""] if items else []
        for item in items:
            lines += _section(item, outcomes.get(item.key), results)
    return "\n".join(lines).rstrip() + "\n"


def _found(item: Item, outcomes: Mapping[str, Outcome]) -> str:
    return verdict(outcomes[item.key].verdict) if item.key in outcomes else "not run"


def _section(item: Item, outcome: Outcome | None, results: Path) -> list[str]:
    lines = [f"### {item.id}", "", f"*{capital(item.place)}:* {sentence(item.claim)}", ""]
    if outcome is None:
        needs = f" It needs {plain(item.needs)}." if item.needs else ""
        return [
            *lines,
            f"Not run.{needs} `spectralgrad reproduce {item.key}` takes about {duration(item.seconds)}.",
            "",
        ]
    lines += [f"**{verdict(outcome.verdict)}.** {plain(outcome.reason)}", ""]
    if item.achieves:
        slip = re.match(r"[^.;:]*(slip|consequence)", item.achieves)  # "A slip with no consequence" needs no heading
        lines += [f"{'' if slip else '*What it achieves:* '}{plain(item.achieves)}", ""]
    if outcome.judged:
        lines += table(
            ["value", "if the claim holds", "computed", "expected", "verdict"], [_row(j) for j in outcome.judged]
        )
    if draw_of(item.key):
        picture = _picture(item).as_posix()
        lines += [
            f"![{capital(item.place)}, recomputed]({picture})",
            "",
            f"*{capital(item.place)}, drawn from the computed values.*",
            "",
        ]
    stored = file_of(item, results).as_posix()
    data = " --data DIR" if item.needs else ""
    took = f"about {duration(item.seconds)}" if item.kind == "training" else duration(outcome.seconds)
    took = f"the runs of [{item.runs_of}](#{item.runs_of})" if item.runs_of else took
    lines += [f"`spectralgrad reproduce {item.key}{data}` ({took}) · [all values]({stored})", ""]
    return [*lines, "At full size, on a machine with a GPU:", "", f"    {item.command}", ""] if item.command else lines


def _row(judged: Judged) -> list[str]:
    claim, expect = (plain(shown_condition(c)) for c in (judged.quantity.claim, judged.quantity.expect))
    return [plain(judged.quantity.what), claim, plain(shown(judged.value)), expect, verdict(judged.verdict)]
