"""The table of a run: each cell with its times, floor and goal. As plain text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spectralgrad.diagnostics.table import number, render

from .goals import BELOW, FLOOR, GOAL, Row, rows
from .outcomes import Outcome
from .stored_outcomes import Run

HEADER = ("ours ms", "against", "its ms", "threads", "JAX ms", "ratio", "floor", "goal", "reached")
PICTURES = (("ratios.png", "How many times faster"), ("cost.png", "Microseconds per matrix"))  # file, description
EXPLANATION = (
    "A cell is a benchmark, a type, a size d or m×n and, in parentheses, a batch. The ratio is the time of what it is\n"
    "compared with divided by ours; both are minima of alternating runs, torch's with its best number of threads.\n"
    "*: the two do not compute the same; --details shows the errors. wrong: not exact, though it claims to be, and\n"
    "therefore not timed."
)


def as_table(outcomes: Iterable[Outcome]) -> str:
    """One row per cell and rival, with floors and goals, as plain text.

    Example:
        >>> from spectralgrad_lab.bench import Case, run
        >>> text = as_table(run([("eigh", Case(2, 3, torch.float32))], seconds=0.01))
        >>> text.splitlines()[0].split()[:3]
        ['cell', 'ours', 'ms']
    """
    found = rows(outcomes)
    kept = columns(found)
    lines = [[row.name, *(line(row)[i] for i in kept)] for row in found]
    return render(["cell", *(HEADER[i] for i in kept)], lines)


def as_markdown(run: Run, pictures: Sequence[tuple[str, str]] = ()) -> str:
    """A page with the machine, the pictures (name of the file, description) and a table for each group of goals."""
    found = rows(run.outcomes)
    kept = columns(found)
    parts = ["# Floors and goals", f"{run.headline}; {run.machine['date']}.", summary(found)]
    parts += [f"![{said}]({name})" for name, said in pictures]
    for title, members in groups(found).items():
        head = ["cell", *(HEADER[i] for i in kept)]
        lines = [head, ["---"] * len(head), *([row.name, *(line(row)[i] for i in kept)] for row in members)]
        parts += [f"## {title}", "\n".join(f"| {' | '.join(cells)} |" for cells in lines)]
    missed = shortfalls(found)
    if missed:
        parts += ["## Below the floor, or wrong", "\n".join(f"- {said}" for said in missed)]
    parts.append(EXPLANATION.replace("*:", r"\*:").replace("\n", " "))
    return "\n\n".join(parts) + "\n"


def groups(found: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by the title of their goals; those without figures come last."""
    grouped: dict[str, list[Row]] = {}
    for row in sorted(found, key=lambda row: not row.goal.title):
        grouped.setdefault(row.goal.title or "Other cells", []).append(row)
    return grouped


def columns(found: Sequence[Row]) -> list[int]:
    """The places in ``HEADER`` that the rows fill."""
    lines = [line(row) for row in found]
    return [i for i, name in enumerate(HEADER) if name not in ("JAX ms",) or any(cells[i] for cells in lines)]


def line(row: Row) -> tuple[str, ...]:
    """The cells of a row, in the order of ``HEADER``."""
    outcome, goal = row.outcome, row.goal
    rival = outcome[goal.rival].timing
    return (
        _time(outcome, goal.ours),
        goal.rival,
        _time(outcome, goal.rival),
        str(rival.threads) if rival and goal.rival != "jax" else "",
        _time(outcome, "jax") if "jax" in outcome else "",
        ratio(row),
        *("" if figure is None else number(figure) for figure in (goal.floor, goal.goal)),
        row.grade,
    )


def summary(found: Sequence[Row]) -> str:
    """How many cells reach goal and floor."""
    grades = [row.grade for row in found if row.grade]
    counts = (len(grades), *(grades.count(grade) for grade in (GOAL, FLOOR, BELOW)))
    said = "{} comparisons with a floor: {} reach the goal, {} the floor, {} are below.".format(*counts)
    return (
        said if any("jax" in row.outcome for row in found) else f"{said} JAX is not among them: it was not installed."
    )


def shortfalls(found: Sequence[Row]) -> list[str]:
    """The comparisons below their floor, and results that were wrong and therefore not timed."""
    below = [
        f"{row.name} against {row.goal.rival}: {ratio(row)}, floor {number(row.goal.floor or 0)}"
        for row in found
        if row.grade == BELOW
    ]
    untimed = [
        f"{row.name}: {entry.name} {_time(row.outcome, entry.name)}"
        for row in found
        for entry in row.outcome.entries
        if entry.timing is None
    ]
    return [*below, *dict.fromkeys(untimed)]


def ratio(row: Row) -> str:
    """The ratio as text, marked if the two do not compute the same; what happened if there is none."""
    if row.ratio is None:
        names = (row.goal.ours, row.goal.rival)
        return next(_time(row.outcome, name) for name in names if row.outcome[name].timing is None)
    same = row.outcome[row.goal.ours].right and row.outcome[row.goal.rival].right
    return number(row.ratio) + ("" if same else "*")


def _time(outcome: Outcome, name: str) -> str:
    entry = outcome[name]
    if entry.timing is None:
        return "failed" if entry.note else "wrong"
    return f"{entry.timing.seconds * 1e3:.3g}"
