"""The benchmark's goals, plan, stored results and pages. No time is asserted."""

import json
import math
import re

import pytest
import torch

from spectralgrad.cli import main
from spectralgrad.errors import SpectralError
from spectralgrad_lab.bench import (
    Case,
    Entry,
    Outcome,
    Timing,
    as_json,
    as_table,
    command,
    goals,
    plan,
    plotted_series,
    run,
)
from spectralgrad_lab.bench import page as pages
from spectralgrad_lab.bench import table as tables
from spectralgrad_lab.bench.comparisons import CONTESTS
from spectralgrad_lab.bench.stored_outcomes import Run, here, read
from spectralgrad_lab.bench.studies.singular_filter import apply, value_and_gradient

from ..documents import ROOT, in_one_line, text

STORED = ROOT / "docs" / "results" / "bench"
MACHINE = {
    "cpu": "<b>chip</b>",
    "instruction set": "AVX2",
    "kernel": None,
    "threads": 2,
    "cores": 2,
    "load": 0.0,
    "python": "3.11",
    "torch": "2.13",
    "spectralgrad": "0.1.0",
    "date": "2026-01-01",
}


def outcome(contest, case, ratio, ours="ours", rival="torch", right=True):
    """An outcome in which the rival took ``ratio`` times as long."""
    mine = Entry(ours, True, 1e-7, right, Timing(1e-3, 2, 5) if right else None)
    theirs = Entry(rival, False, 1e-7, True, Timing(ratio * 1e-3, 1, 5))
    return Outcome(contest, case, (mine, theirs))


def measured(ratio):
    """A run in which every comparison has the same ratio, JAX included."""
    found = {}
    for goal in goals.table():
        mine, theirs = outcome(goal.contest, goal.case, ratio, goal.ours, goal.rival).entries
        found.setdefault(goal.cell, {}).update({goal.ours: mine, goal.rival: theirs})
    return Run(MACHINE, 1.0, tuple(Outcome(*cell, tuple(entries.values())) for cell, entries in found.items()))


def test_every_goal_is_of_a_contest_and_in_order():
    assert {goal.contest for goal in goals.table()} == set(CONTESTS)
    for goal in goals.table():
        assert (goal.floor is None) == (goal.goal is None)
        assert goal.floor is None or 0 < goal.floor <= goal.goal


@pytest.mark.runs
def test_contestants_of_the_goals_take_part():
    tiny = {
        name: Case(2, 3, case.dtype, case.spectrum, 5 if case.columns else 0)
        for name, case in reversed(goals.cells())
        if case.precision == "float32"
    }
    known = {o.contest: o for o in run(tiny.items(), 0.001)}
    for goal in goals.table():
        assert goal.ours in known[goal.contest]
        assert goal.rival in known[goal.contest] or goal.rival == "jax"


def test_the_table_covers_batches_types_and_shapes():
    cells = goals.cells()
    batches, sizes = goals.grid_axes()
    assert {(b, d) for b in batches for d in sizes} <= {(c.batch, c.size) for name, c in cells if name == "eigh"}
    assert {1, 4096} <= {case.batch for _, case in cells}
    assert {case.precision for name, case in cells if name == "svd"} == {"float32", "float64", "complex64"}
    shapes = [case.shape for name, case in cells if name in ("svd", "svd_grad")]
    assert any(m > n for m, n in shapes)
    assert any(m < n for m, n in shapes)


def test_figures_of_a_cell_come_before_those_of_the_grid():
    found = {(g.contest, g.case, g.rival): g for g in goals.table()}
    one, four = (found["eigh", Case(b, 64, torch.float32), "torch"] for b in (1, 4))
    assert (one.floor, one.goal) == (1.6, 2.4)
    assert (four.floor, four.goal) == (1.0, 1.0)
    halved = found["svd", Case(1024, 9, torch.float64, "gaussian", 9), "torch"]
    assert (halved.floor, halved.goal) == (5.0, 8.0)
    assert found["svd", Case(1024, 9, torch.float64, "gaussian", 9), "jax"].floor == 1.0


@pytest.mark.parametrize(("ratio", "grade"), [(9.9, "below"), (10.0, "floor"), (15.9, "floor"), (16.0, "goal")])
def test_grades(ratio, grade):
    (row,) = goals.rows([outcome("svd", Case(1024, 9, torch.float32, "gaussian", 9), ratio)])
    assert row.grade == grade


def test_being_wrong_is_below():
    case = Case(1024, 9, torch.float32, "gaussian", 9)
    found = goals.rows([outcome("svd", case, 100.0, right=False)])
    assert [row.grade for row in found] == ["below"]
    assert tables.shortfalls(found) == [
        "svd float32 9×9 (1024) against torch: wrong, floor 10",
        "svd float32 9×9 (1024): ours wrong",
    ]


def test_a_cell_without_goals_has_a_row():
    text = as_table([outcome("eigh", Case(7, 5, torch.float64, "clustered"), 3.0)])
    assert text.splitlines()[-1].split() == ["eigh", "float64", "clustered", "d=5", "(7)", "1", "torch", "3", "1", "3"]


def test_the_table_counts_what_is_below():
    found = goals.rows(measured(1e-3).outcomes)
    graded = [row for row in found if row.goal.floor is not None]
    assert tables.summary(found) == (
        f"{len(graded)} comparisons with a floor: 0 reach the goal, 0 the floor, {len(graded)} are below."
    )
    assert len(tables.shortfalls(found)) == len(graded)
    assert tables.shortfalls(goals.rows(measured(1e3).outcomes)) == []


def test_plan_follows_the_options():
    cells = plan.plan(("eigh", "polar"), ("float64",), ("graded", "clustered"))
    assert {name for name, _ in cells} == {"eigh", "polar"}
    assert {case.spectrum for name, case in cells if name == "eigh"} == {"graded", "clustered"}
    assert {case.precision for _, case in cells} == {"float64"}
    assert plan.plan() == goals.cells()
    quick = plan.plan(quick=True)
    assert set(quick) < set(goals.cells())
    assert {name for name, _ in quick} == set(CONTESTS) - {"whitening", "frechet"}
    (layer,) = plan.plan(("whitening",), ("complex64",))
    assert layer[1].precision == "float32"


def test_results_can_be_read_again(tmp_path):
    cells = [("eigh", Case(2, 3, torch.float32)), ("svd", Case(2, 3, torch.complex64, "gaussian", 3))]
    done = here(run(cells, 0.001), 0.001)
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(as_json(done)))
    assert read(file) == done


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("machine"), "expected machine"),
        (lambda c: c["results"][0].update(contest="lu"), "expected one of 'eigh'"),
        (lambda c: c["results"][0]["contestants"][0].update(seconds=-1), "expected a number"),
        (lambda c: c["results"][0]["contestants"].pop(), "expected one of ours and a rival"),
        (lambda c: c["machine"].update(cpu=["a"]), "expected printable text"),
        (lambda c: c["machine"].update(load="high"), "expected a number"),
    ],
)
def test_damaged_results_are_refused(tmp_path, change, message):
    content = as_json(Run(dict(MACHINE), 1.0, (outcome("eigh", Case(1, 3, torch.float32), 2.0),)))
    change(content)
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(content))
    with pytest.raises(SpectralError, match=message) as problem:
        read(file)
    assert str(file) in str(problem.value)


def test_the_page_has_everything_and_escapes_it():
    text = pages.render(measured(2.0))
    assert "&lt;b&gt;chip" in text
    assert "<b>chip" not in text
    for goal in goals.table():
        assert f"<h3>{goal.title}</h3>" in text
    batches, sizes = goals.grid_axes()
    assert text.count('<td style="--share') == len(batches) * len(sizes)
    assert text.count('class="slower"') == 0
    assert pages.render(measured(0.5)).count('class="slower"') == len(batches) * len(sizes)
    assert "src=" not in text  # self-contained
    assert "href=" not in text


def test_a_page_of_little_is_written_too():
    text = pages.render(Run(MACHINE, 1.0, (outcome("eigh", Case(7, 5, torch.float64), 3.0),)))
    assert "comparisons without a floor" in text
    assert 'class="heat"' not in text
    assert pages.render(Run(MACHINE, 1.0, ())).count("<section") == 2


def test_lines_of_the_pictures():
    found = measured(2.0)
    assert all(ratio == pytest.approx(2.0) for ratio in plotted_series.grid(found.outcomes).values())
    by_size = plotted_series.by_size(goals.rows(found.outcomes))
    assert [x for x, _ in by_size["svd, float64"]][:3] == [2, 3, 9]
    assert set(plotted_series.by_batch(found.outcomes)) == {f"d = {d}" for d in goals.grid_axes()[1]}


def test_a_folder_has_page_pictures_table_and_data(tmp_path, capsys):
    source, target = tmp_path / "in.json", tmp_path / "report"
    source.write_text(json.dumps(as_json(measured(2.0))))
    assert main(["bench", "--from", str(source), "--report", str(target)]) == 0
    names = {"bench.json", "cost.png", "goals.md", "ratios.png", "report.html"}
    assert {file.name for file in target.iterdir()} == names
    assert json.loads((target / "bench.json").read_text()) == json.loads(source.read_text())
    text = (target / "goals.md").read_text("utf-8")
    assert "![" in text
    assert capsys.readouterr().out.count("svd float32 9×9 (1024)") == 3  # torch, JAX, and below the floor

    alone = tmp_path / "page.html"
    assert main(["bench", "--from", str(source), "--report", str(alone)]) == 0
    assert alone.read_text("utf-8") == (target / "report.html").read_text("utf-8")


def test_a_run_writes_its_page(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "plan", lambda *_: [("eigh", Case(1, 3, torch.float32))])
    target = tmp_path / "page.html"
    assert main(["bench", "--seconds", "0.001", "--report", str(target)]) == 0
    assert "<h3>eigh, one matrix</h3>" in target.read_text("utf-8")


def test_the_table_in_the_documentation_is_that_of_its_data():
    """Written by ``spectralgrad bench --from docs/results/bench/bench.json --report docs/results/bench``."""
    stored = (STORED / "goals.md").read_text("utf-8")
    assert stored == tables.as_markdown(read(STORED / "bench.json"), tables.PICTURES)


def test_the_figures_of_the_page_about_speed_are_those_of_its_run():
    page, stored = ROOT / "docs" / "benchmarks.md", text(STORED / "goals.md")
    words = "{} comparisons with a floor: {} reach the goal, {} the floor, {} are below"
    counts = re.search(words.format(*[r"(\d+)"] * 4), stored).groups()
    sentence = "Of {} comparisons with a floor, {} reach the goal, {} the floor, and {} are below it."
    assert sentence.format(*counts) in in_one_line(page)
    rows = [_cells(line) for line in stored.splitlines() if line.startswith("| eigh ")]
    ratios = {row[0]: float(row[6]) for row in rows if row[6]}
    compared = re.findall(r"^\| \d+ \(\d+\) \|.*", text(page), re.MULTILINE)
    assert len(compared) == 8
    for size, *given in map(_cells, compared):
        for kind, printed in zip(("float32", "float64", "float32 graded"), given, strict=False):
            ratio = ratios[f"eigh {kind} d={size}"]  # rounded to three digits, the page to two
            assert abs(float(printed) - ratio) <= 0.505 * 10 ** (math.floor(math.log10(ratio)) - 1), (kind, size)


def _cells(row):
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6)])
def test_the_reference_of_singular_filters_is_autograd_away_from_ties(dtype, shape):
    M, G = (torch.randn(3, *shape, dtype=dtype, generator=torch.Generator().manual_seed(k)) for k in (0, 1))
    leaf = M.requires_grad_()
    expected = apply(*torch.linalg.svd(leaf, full_matrices=False))
    value, gradient = value_and_gradient(M.detach(), G)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(gradient, *torch.autograd.grad(expected, leaf, G), rtol=1e-9, atol=1e-11)


def test_the_reference_of_singular_filters_is_a_difference_quotient_at_ties():
    generator = torch.Generator().manual_seed(0)
    Q = torch.linalg.qr(torch.randn(5, 3, dtype=torch.float64, generator=generator)).Q
    G, E = (torch.randn(5, 3, dtype=torch.float64, generator=generator) for _ in range(2))
    step = torch.finfo(torch.float64).eps ** (1 / 3)
    high, low = (value_and_gradient(Q + sign * step * E, G)[0] for sign in (1, -1))
    expected = ((high - low) * G).sum() / (2 * step)
    torch.testing.assert_close((value_and_gradient(Q, G)[1] * E).sum(), expected, rtol=100 * step**2, atol=0)
