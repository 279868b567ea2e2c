"""A page in Markdown for each paper, and an index, written from the outcomes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from spectralgrad.io.files import write_text

from ..items import KINDS, Item, Paper, papers
from ..outcomes import draw
from ..run_item import UNFINISHED, Outcome
from ..terminal_text import counted, number
from ..verdicts import ANALYSIS, MEANINGS, MISPRINT, NOT_RUN, NUMBERS, RESULT, SCOPE, VERDICTS, WEIGHTS
from .counts import STATEMENTS, classes, in_words, verdicts_of
from .markdown import folded, plain, table, verdict
from .sections import picture_of, section

_INDEX = """\
# The papers, recomputed

Tables, figures, equations and claims of the papers are items that `spectralgrad reproduce` runs: what the paper states
in its own words, what we test, what we compute, a verdict with its weight, and a reason. These pages are written from
stored results by `spectralgrad reproduce pages`.
"""
_ONCE = """\
A matter that a paper states twice, or that two papers share, is counted once. [Our own statements](gradients.md), by
which the papers' are measured, are not counted.
"""
_NOTE = """\
The verdict of an item is the least favorable one of its values. It is about a statement as printed, not about a method:
where a statement fails, the item says what the method achieves nevertheless. An experiment is compared with what the
paper says about it: a difference counts if it exceeds two standard errors. If it does not, it is *not seen* where an
effect of the published size would have been, and *too small to tell* otherwise. A list of differences has the verdict
of most of them. Chance alone exceeds two standard errors in one of five or six comparisons of three runs.
"""
_HOW_TO_READ = """\
Each item has the statement in a line of ours and, unless it agrees, in the paper's words: verbatim, with formulas in
plain characters and evident recognition errors of the PDF mended. *Published* is what the paper prints for a value (for
a difference of training runs, the difference of the printed means), a dash if it prints nothing. *Test* is the
condition that the statement puts on it, such as < 1e-12 for the two sides of an equation; a value without a test is
there to explain. *Expected* is what a correct computation gives, and is checked.
[What verdicts and weights mean](index.md#verdicts)."""
_OWN_READ = """\
These statements are ours. *Test* is the condition that a statement puts on a value, *expected* is what a correct
computation gives, and is checked. [What the verdicts mean](index.md#verdicts)."""
_ERRATA = "Slips in print, without consequence for method or results; some may be slips of the copy that we read."
_ALL = "Here each item is counted where it stands, also those that repeat another one.\n"
_TITLES = {RESULT: "Results", ANALYSIS: "Analysis", NUMBERS: "Numbers", SCOPE: "Scope", MISPRINT: "Errata"}
_KIND_TITLES = {"analytic": "Statements", "figure": "Figures", "training": "Training"}


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
            draw(outcome, folder / picture_of(outcome.item))
    link = Path(os.path.relpath(results, folder))
    pages = {"index.md": _index(outcomes)}
    pages.update((f"{paper.name}.md", _page(paper, outcomes, link)) for paper in papers())
    for name, text in pages.items():
        write_text(folder / name, text)
    return [folder / name for name in pages]


def _index(outcomes: Mapping[str, Outcome]) -> str:
    meanings = [[verdict(name), plain(meaning)] for name, meaning in MEANINGS.items()]
    weights = [[f"**{name}**", plain(meaning)] for name, meaning in WEIGHTS.items()]
    return "\n".join(
        [
            *(_INDEX, in_words(outcomes), "", *_by_weight(outcomes), _ONCE, "## Pages", "", *_by_paper(outcomes), _ALL),
            *("## Verdicts", "", *table(["verdict", "meaning"], meanings), _NOTE),
            *("## Weights", "", *table(["weight", "the statement is about"], weights)),
        ]
    )


def _by_weight(outcomes: Mapping[str, Outcome]) -> list[str]:
    """The statements of the papers by weight and verdict."""
    found = classes(outcomes)
    columns = [name for name in (*STATEMENTS, NOT_RUN) if any(v == name for _, v in found)]
    rows = [[f"**{w}**", *(str(found[w, v]) for v in columns)] for w in WEIGHTS]
    rows = [[*row, str(sum(map(int, row[1:])))] for row in rows]
    totals = [sum(int(row[k]) for row in rows) for k in range(1, len(columns) + 2)]
    return table(["", *map(_head, columns), "statements"], [*rows, ["**all**", *(f"**{t}**" for t in totals)]])


def _by_paper(outcomes: Mapping[str, Outcome]) -> list[str]:
    """All items by paper and verdict, our own statements last."""
    counts = [verdicts_of(paper.items, outcomes) for paper in papers()]
    columns = [name for name in (*VERDICTS, NOT_RUN) if sum(counts, Counter())[name]]
    names = [f"[{plain(paper.title)}]({paper.name}.md)<br>{plain(paper.venue)}" for paper in papers()]
    rows = [
        [name, *(str(count[c]) for c in columns), str(count.total())] for name, count in zip(names, counts, strict=True)
    ]
    return table(["", *map(_head, columns), "items"], rows)


def _head(name: str) -> str:
    return verdict(name) if name in VERDICTS else name


def _page(paper: Paper, outcomes: Mapping[str, Outcome], results: Path) -> str:
    counts = counted(verdicts_of(paper.items, outcomes))
    source = "".join(f"{plain(line)}. " for line in (paper.authors, paper.venue) if line).rstrip()
    lines = [f"# {plain(paper.title)}", "", source, "", plain(paper.about), ""]
    lines += [f"{len(paper.items)} items: {counts}.", "", _OWN_READ if paper.own else _HOW_TO_READ, ""]
    for title, items in _parts(paper).items():
        shown = [_overview(items, outcomes), *(section(item, outcomes.get(item.key), results) for item in items)]
        body = [line for part in shown for line in part]
        errata = items[0].weight == MISPRINT
        lines += [f"## {title}", "", *((_ERRATA, "", *folded(number(len(items)), body)) if errata else body)]
    return "\n".join(lines).rstrip() + "\n"


def _parts(paper: Paper) -> dict[str, list[Item]]:
    """The items by weight, the heaviest first; our own by kind."""
    if paper.own:
        parts = {_KIND_TITLES[kind]: [i for i in paper.items if i.kind == kind] for kind in KINDS}
    else:
        parts = {title: [i for i in paper.items if i.weight == weight] for weight, title in _TITLES.items()}
    return {title: items for title, items in parts.items() if items}


def _overview(items: Sequence[Item], outcomes: Mapping[str, Outcome]) -> list[str]:
    rows = [[f"[{i.id}](#{i.id.lower()})", plain(i.place), plain(i.claim), _found(i, outcomes)] for i in items]
    return table(["item", "place", "claim", "verdict"], rows)


def _found(item: Item, outcomes: Mapping[str, Outcome]) -> str:
    if item.key not in outcomes:
        return NOT_RUN
    found = outcomes[item.key]
    seeds = f" ({found.values[UNFINISHED]})" if UNFINISHED in found.values else ""
    return verdict(found.verdict, item.weight) + seeds
