"""The report: one file with everything in it, and the numbers are those of the results."""

import dataclasses
import json
import math
import re
import statistics
from html.parser import HTMLParser

import pytest
import torch

from spectralgrad.cli import main
from spectralgrad_lab import Config, Epoch, Failure, Result, train
from spectralgrad_lab.comparison.gradient_errors import GradientErrors, measure
from spectralgrad_lab.comparison.grid import compare, grid, job_for
from spectralgrad_lab.comparison.paired_differences import against
from spectralgrad_lab.comparison.results import RESULTS, ResultsFile, summarize
from spectralgrad_lab.comparison.trained_layer import trained_layer
from spectralgrad_lab.report import report
from spectralgrad_lab.report.axes import Axis, short_number
from spectralgrad_lab.report.figures import curves, layer_errors
from spectralgrad_lab.report.page import contents
from spectralgrad_lab.report.published_cells import published
from spectralgrad_lab.report.sentences import details, headline, spread
from spectralgrad_lab.report.ties import ties
from spectralgrad_lab.training.storage.checkpoints import save

SECTIONS = ["results", "success", "curves", "gradients", "conditioning", "time", "failures", "made"]
TIED = (0.01,) * 7 + (0.02, 0.03, 0.05, 0.08, 0.1, 0.2, 0.4, 0.7, 1.3)


def epoch(number, error, method="exact", condition=200.0, step_ms=20.0):
    return Epoch(number, 0.05, 2.0 / (number + 1), error, 1.5, error, 3.0, 700.0, step_ms, condition, 16, method)


def done(method, seed, error, **config):
    layer = {"layer": "batchnorm"} if method == "batchnorm" else {"method": method}
    epochs = [epoch(0, error + 20, condition=float("nan") if method == "batchnorm" else 200.0), epoch(1, error)]
    return Result(Config(seed=seed, epochs=2, **{"group_size": 16, **layer, **config}), "done", epochs, seconds=6.0)


def failed(method, seed, **config):
    why = Failure(3 + seed, 0, "the gradient is not finite", "bn1", TIED)
    return Result(Config(method=method, seed=seed, epochs=2, **{"group_size": 16, **config}), "failed", failure=why)


RUNS = [
    *(failed("svd", seed) for seed in (0, 1)),
    *(done("svd-taylor", seed, error) for seed, error in ((0, 31.5), (1, 33.25))),
    *(done("exact", seed, error) for seed, error in ((0, 30.5), (1, 32.0))),
    *(done("batchnorm", seed, error) for seed, error in ((0, 31.0), (1, 34.0))),
]
COMMAND = "spectralgrad compare --seeds 2"
PAPER = {"dataset": "cifar10", "network": "resnet18-cifar", "form": "published"}  # TPAMI's Table 4


def written(folder, results=RUNS, command=COMMAND, load=0.5, **session):
    for result in results:
        ResultsFile(folder / RESULTS).append(result)
    machine = {"cpu": "A processor", "cores": 2, "instruction set": "AVX2", "kernel": None, "date": "2020-02-02"}
    session = session or {"command": command}
    session |= {"running": "two at a time", "machine": machine | {"load": load}}
    (folder / "session.json").write_text(json.dumps(session))
    return report(folder)


class Page(HTMLParser):
    """Tags, links, the rows of the table and the text of a page."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.links, self.sections, self.rows, self.said = [], [], [], [], ""
        self._cell, self._open = None, []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href", "data", "action")]
        if tag not in ("meta", "link", "br", "circle", "line", "rect", "path"):
            self._open.append(tag)
        if tag == "section":
            self.sections.append(found["id"])
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if tag not in ("circle", "line", "rect", "path"):
            assert self._open.pop() == tag

    def handle_data(self, data):
        if "style" in self._open:
            return
        self.said += data
        if "td" in self._open:
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return Page(written(tmp_path_factory.mktemp("report")).path.read_text("utf-8"))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return written(tmp_path_factory.mktemp("source")).path.read_text("utf-8")


def test_the_page_needs_nothing_but_itself(source, page):
    assert page.links == []
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(page.tags)
    assert not re.search(r"https?:|url\(|@import|//[a-z]+\.", source)


def test_every_section_is_there_and_has_images(page):
    assert page.sections == [SECTIONS[0], "pairs", *SECTIONS[1:]]
    assert page.tags.count("svg") > 30
    assert page.tags.count("h1") == 1


def test_light_dark_and_phones_are_provided_for(source):
    for word in ("prefers-color-scheme: dark", "max-width: 680px", 'name="viewport"', "color-scheme"):
        assert word in source


def test_the_numbers_are_those_of_the_results(page):
    rows = {row[0]: row[1:] for row in page.rows if len(row) == 7 and row[0]}
    assert set(rows) == {"svd", "svd-taylor", "exact", "batchnorm"}
    for summary in summarize(RUNS):
        d, success, error, least, step, condition, *_ = rows[summary.label]
        assert success == f"{len(summary.done)}/{len(summary.results)}"
        assert d == ("–" if summary.label == "batchnorm" else "16")
        if not summary.errors:
            assert (error, least) == ("–", "–")
            continue
        mean, sd = map(float, error.split(" ± "))
        assert mean == pytest.approx(summary.mean, abs=0.0051)
        assert sd == pytest.approx(summary.sd, abs=0.0051)
        assert float(least) == min(summary.errors)
        assert float(step) == summary.step_ms
        assert condition == ("–" if math.isnan(summary.condition) else "200")


def test_the_papers_numbers_stand_beside_and_impossible_ones_are_marked(tmp_path):
    runs = [done("svd-clip", 0, 30.0, **PAPER, group_size=8), failed("svd", 0, **PAPER, group_size=4)]
    page = Page(written(tmp_path, runs).path.read_text())
    rows = {row[0]: row for row in page.rows if len(row) == 9 and row[0]}
    assert rows["svd-clip"][7:] == ["100 %", "4.77 ± 0.66 (4.66)*"]
    assert rows["svd"][7:] == ["46.7 %", "4.54 ± 0.08 (4.59)*"]
    for run in runs:
        assert published(run.config).note in page.said
    assert published(Config(**PAPER, method="exact", group_size=4)) is None
    assert "The methods ran in the published form." in page.said


def test_failures_tell_step_layer_and_spectrum(page):
    for word in (
        "svd, seed 0: step 3, epoch 1, layer bn1",
        "The gradient is not finite",
        "7 of 16 eigenvalues are tied at 0.01",
    ):
        assert word in re.sub(r"\s+", " ", page.said)


def test_what_made_it_is_told(page):
    for word in (COMMAND, "0, 1", "A processor, 2 cores", "torch", "spectralgrad", "python", "batch size", "fashion"):
        assert word in page.said


def test_the_headline_is_made_from_the_numbers():
    summaries = summarize(RUNS)
    assert headline(summaries) == "svd failed in both runs. All 6 runs of the other 3 methods finished."
    assert headline(summarize(RUNS[2:])) == "All 6 runs of the 3 methods finished."
    assert headline(summarize([*RUNS, done("svd", 2, 31.0)])).startswith("svd failed in 2 of 3 runs.")
    sizes = [failed("svd", 0), done("svd", 0, 30.0, group_size=8), done("exact", 0, 30.0)]
    assert headline(summarize(sizes)) == ("svd failed in 1 of 2 runs, at d = 16. The only run of exact finished.")
    cause, errors = details(summaries, None)
    assert cause.startswith("The first failure was at step 3 in layer bn1")
    assert "from 31.25 % (exact) to 32.50 % (batchnorm)" in errors
    assert "up to 3.00 points" in errors


def test_the_sentence_on_gradients_names_nearest_farthest_and_missing():
    found = GradientErrors("inv_sqrt", (), {}, {"svd": 5e-3, "exact": 1e-6, "svd-pi": 13.0}, {"svd": 3, "exact": 0}, 64)
    (said,) = details([], found)
    assert "exact has a relative error of 1×10⁻⁶, and svd-pi's has 13; svd has no gradient on 3 of 64." in said


def test_methods_stand_in_the_order_of_a_comparison_whichever_ended_first(tmp_path):
    page = Page(written(tmp_path, RUNS[::-1]).path.read_text("utf-8"))
    rows = [row[0] for row in page.rows if len(row) == 7 and row[0]]
    assert rows == ["svd", "svd-taylor", "exact", "batchnorm"]


def test_a_name_cannot_break_the_page(tmp_path):
    nasty = Failure(0, 0, "<script>alert(1)</script>", "<b>layer", TIED)
    result = Result(Config(method="svd"), "failed", failure=nasty)
    source = written(tmp_path, [result], "spectralgrad compare '<script>'").path.read_text()
    assert "<script>" not in source
    assert "&lt;b&gt;layer" in source


@pytest.mark.parametrize(
    "results",
    [
        [failed("svd", 0)],
        [done("batchnorm", 0, 30.0)],
        [done("exact", 0, 30.0, group_size=size) for size in (4, 8, 64)],
        [Result(Config(method="svd"), "failed", failure=Failure(0, 0, "no", None, ()))],
        [done("exact", 0, 30.0), done("exact", 0, 30.0, dataset="cifar10", network="resnet8")],
        [done("pi", 0, 30.0, layer="denoising"), done("svd-pade", 0, 31.0, pooling="covariance")],
    ],
    ids=["only-failed", "nothing-spectral", "sizes", "no-spectrum", "two-settings", "other-layers"],
)
def test_any_results_make_a_page(results, tmp_path):
    page = Page(written(tmp_path, results).path.read_text("utf-8"))
    assert page.sections == SECTIONS
    for summary in summarize(results):
        assert summary.name in page.said


def test_gradients_are_kept_for_when_the_checkpoints_are_gone(tmp_path):
    written(tmp_path)
    path = tmp_path / "gradients.json"
    kept = GradientErrors.from_dict(json.loads(path.read_text()))
    assert set(kept.at_gaps) == {"svd", "svd-taylor", "exact"}
    assert kept.layer is None
    layer = GradientErrors(
        **{**vars(kept), "layer": dict.fromkeys(kept.at_gaps, 0.125), "missing": dict.fromkeys(kept.at_gaps, 7)}
    )
    path.write_text(json.dumps({**layer.to_dict(), "matrices": 64, "size": 16, "run": "exact, seed 0"}))
    assert "0.12, none on 7 of 64" in Page(report(tmp_path).path.read_text("utf-8")).said


def test_the_trained_layer_shows_its_ties_and_what_each_method_makes_of_them(tmp_path):
    config = Config(method="exact", group_size=16, train_size=64, batch_size=16, epochs=1, tensorboard=False, threads=1)
    train(config, tmp_path)
    layer = trained_layer(tmp_path, config)
    assert layer.matrices.shape == (4 * 4, 16, 16)  # four batches of four groups
    found = measure("inv_sqrt", ("exact", "svd", "svd-taylor"), layer, "exact")
    assert [len(group) for group in ties(found.spectrum)] == [7]
    assert found.layer["exact"] < 1e-3 < 0.1 < found.layer["svd-taylor"]
    assert found.missing["exact"] == found.missing["svd-taylor"] == 0
    assert found.missing["svd"] > 0


def test_an_unfinished_comparison_and_another_place_for_the_page(tmp_path, capsys):
    ResultsFile(tmp_path / RESULTS).append(RUNS[2])
    assert main(["report", str(tmp_path / RESULTS), "--out", str(tmp_path / "page.html")]) == 0
    assert "page.html" in capsys.readouterr().out
    assert Page((tmp_path / "page.html").read_text("utf-8")).sections == SECTIONS


def test_without_results_or_jinja_the_error_says_what_to_do(tmp_path, capsys, monkeypatch):
    assert main(["report", str(tmp_path)]) == 1
    assert "`spectralgrad compare` writes them" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "no" / "page.html")]) == 1
    assert "does not exist; create it first" in capsys.readouterr().err
    monkeypatch.setattr("spectralgrad_lab.report.template.find_spec", lambda _: None)
    assert main(["report", str(tmp_path)]) == 1
    assert "pip install jinja2" in capsys.readouterr().err


@pytest.mark.parametrize("values", [[], [5.0], [0.0], [3.1, 3.2], [47.09, 53.04], [1e-8, 1e3], [math.nan, 2.0]])
@pytest.mark.parametrize("log", [False, True])
def test_an_axis_holds_its_values_and_has_ticks_inside(values, log):
    axis = Axis.around(values, log=log)
    known = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    assert axis.low < axis.high
    assert all(axis.low <= v <= axis.high for v in known)
    ticks = axis.ticks()
    assert len(ticks) >= 2
    assert all(0 <= axis.place(value) <= 1 and axis.low <= value * (1 + 1e-9) for value, _ in ticks)


def test_numbers_are_short():
    assert [short_number(x) for x in (1e-13, 0.0, 2.0, math.inf)] == ["1×10⁻¹³", "0", "2", "inf"]


def test_methods_are_paired_with_exact_by_seed_and_group_size(tmp_path):
    sizes = (4, 8)
    runs = [done("exact", seed, 20.0 + seed + d, group_size=d) for seed in (0, 1) for d in sizes]
    runs += [done("svd-clip", seed, 21.0 + seed + d + 0.5 * seed, group_size=d) for seed in (0, 1) for d in sizes]
    runs += [done("svd", 0, 24.25, group_size=4), failed("svd", 0, group_size=8), failed("svd", 1, group_size=4)]
    runs += [done("batchnorm", seed, 30.0) for seed in (0, 1)]
    runs = [dataclasses.replace(run, config=run.config.replaced(**PAPER)) for run in runs]
    found = {pairs.label: pairs for pairs in against(runs)}
    assert found["exact"].differences == (0.0,) * 4
    assert found["svd-clip"].differences == (1.0, 1.5, 1.0, 1.5)  # d = 4, then 8
    assert found["svd-clip"].standard_error == pytest.approx(statistics.stdev([1.0, 1.0, 1.5, 1.5]) / 2)
    assert (found["svd"].differences, found["svd"].done, found["svd"].runs) == ((0.25,), 1, 3)
    assert found["batchnorm"].differences == (4.0, 3.0)  # beside 26 and 27, the means over d
    assert against(runs[4:]) == []
    page = Page(written(tmp_path, runs).path.read_text("utf-8"))
    assert ["svd-clip", "4/4", "4", "+1.25 ± 0.14"] in page.rows
    assert ["svd", "1/3", "1", "+0.25"] in page.rows
    assert ["svd", "1/246.7 %", "0/10 %"] in page.rows  # here, and beneath it the paper's
    assert "svd failed in 2 of 3 runs." in page.said


def test_parameters_of_a_method_are_measured_too(tmp_path):
    runs = [done("svd-taylor", 0, 20.0), done("svd-taylor:degree=100", 0, 20.0)]
    measured = contents(runs, tmp_path)["gradients"]
    assert list(measured.at_gaps) == ["svd-taylor", "svd-taylor:degree=100"]
    assert measured.at_gaps["svd-taylor:degree=100"][0] < measured.at_gaps["svd-taylor"][0]


def test_gradients_are_measured_in_the_form_that_ran(tmp_path):
    runs = [done(name, 0, 20.0, form="published") for name in ("svd-taylor", "svd-pi", "exact")]
    measured = contents(runs, tmp_path)["gradients"]
    assert list(measured.at_gaps) == ["svd-pi:eps=0.01", "svd-taylor:faithful=True:clamp=0.01", "exact"]


# --- what a newcomer tripped over


def text_of(folder, results=RUNS, **kwargs):
    """What the page says, in one line."""
    return re.sub(r"\s+", " ", Page(written(folder, results, **kwargs).path.read_text("utf-8")).said)


def test_as_many_eigenvalues_are_red_as_the_text_says(tmp_path):
    near = (0.01,) * 7 + (0.0104, 0.0105, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.3)
    twice = (0.01,) * 7 + (0.3, 0.3)
    below = (-1e-3, 0.0, 0.0, 0.1)
    whys = [Failure(k, 0, "no gradient", "bn1", spectrum) for k, spectrum in enumerate((near, twice, below))]
    runs = [Result(Config(method="svd", seed=k), "failed", failure=why) for k, why in enumerate(whys)]
    source = written(tmp_path, runs).path.read_text("utf-8")
    shown = [block.count('"dot tied"') for block in source.split('<div class="failure">')[1:]]
    drawn = [block.count("<circle") for block in source.split('<div class="failure">')[1:]]
    assert (shown, drawn) == ([7, 9, 2], [16, 9, 4])
    for text in (
        "7 of 16 eigenvalues are tied at 0.01:",
        "9 of 9 eigenvalues are tied, 7 of them at 0.01:",
        "2 of 4 eigenvalues are tied at 0; those that are not positive are at the left end:",
    ):
        assert text in source


def test_what_rounding_of_the_largest_eigenvalue_blurs_is_tied():
    assert ties((0.0099995, 0.01, 0.0100005, 0.5, 4.6)) == [[0.0099995, 0.01, 0.0100005]]
    assert ties((0.0099995, 0.01, 0.0100005, 0.5)) == []


def test_the_paper_is_left_out_where_it_has_nothing_alike(tmp_path):
    pooled = [done(method, 0, 30.0, layer="batchnorm", pooling="covariance") for method in ("svd-clip", "svd-taylor")]
    others = [done("svd-pi", 0, 30.0, layer="denoising"), done("svd-clip", 0, 30.0, whitening="pca")]
    others += [done("svd", 0, 30.0, nog=True), done("svd-taylor", 0, 30.0, weights="ow")]
    for k, runs in enumerate((pooled, others)):
        folder = tmp_path / str(k)
        folder.mkdir()
        page = Page(written(folder, [*runs, done("batchnorm", 0, 31.0)]).path.read_text("utf-8"))
        assert "paper" not in page.said.lower()
        rows = [row for row in page.rows if row and row[0].startswith("batchnorm")]
        assert [len(row) for row in rows] == [7]


def test_all_channels_are_the_papers_64_and_come_last(tmp_path):
    sizes = (None, 64, 4)
    runs = [failed("svd", 0, **PAPER, group_size=size) for size in sizes]
    page = Page(written(tmp_path, runs).path.read_text("utf-8"))
    rows = [row for row in page.rows if len(row) == 9 and row[0]]
    assert [row[1] for row in rows] == ["4", "64", "all"]
    assert [row[7] for row in rows] == ["46.7 %", "0 %", "0 %"]
    assert "failed in all 3 runs" in page.said


def test_what_differs_from_the_papers_training_is_said_above_the_table(tmp_path):
    like = [dataclasses.replace(r, config=r.config.replaced(**PAPER)) for r in RUNS]
    (tmp_path / "short").mkdir()
    above = text_of(tmp_path / "short", like).partition("ms/step")[0]
    assert "The paper trained ResNet-18 on CIFAR-10 for 350 epochs; these runs used all images, 2 epochs." in above
    assert "cannot be compared" in above
    whole = [dataclasses.replace(r, config=r.config.replaced(epochs=350)) for r in like]
    assert "The paper trained" not in text_of(tmp_path, whole)


def test_other_data_another_network_and_the_sound_form_have_no_cell(tmp_path):
    taylor = Config(**PAPER, method="svd-taylor", group_size=16)
    assert str(published(taylor)) == "4.52 ± 0.14 (4.33)"
    others = [{"dataset": "fashion"}, {"network": "resnet8"}, {"form": "sound"}, {"eps": 1e-4}, {"group_size": 2},
              {"whitening": "pca"}, {"nog": True}, {"hybrid": "svd", "milestones": (3,)}]  # fmt: skip
    assert [published(taylor.replaced(**other)) for other in others] == [None] * len(others)
    assert published(taylor.replaced(method=taylor.method + ":degree=9", epochs=3, train_size=100)) is not None
    assert "paper" not in text_of(tmp_path).lower()


def test_runs_in_both_forms_are_told_apart(tmp_path):
    runs = [done("svd-taylor", 0, 30.0, **{**PAPER, "form": form}) for form in ("sound", "published")]
    page = Page(written(tmp_path, [*runs, done("batchnorm", 0, 30.0, **PAPER)]).path.read_text("utf-8"))
    rows = {row[0]: row[7:] for row in page.rows if len(row) == 9 and row[0]}
    assert rows["svd-taylor form=published"] == ["100 %", "4.52 ± 0.14 (4.33)"]
    assert rows["svd-taylor form=sound"] == ["–", "–"]
    assert rows["batchnorm"] == ["–", "4.81 ± 0.19 (4.66)"]
    assert "Methods ran in two forms" in page.said


def test_rates_that_the_paper_does_not_give_are_dashes_and_no_line(tmp_path):
    like = {"dataset": "cifar100", "network": "resnet18-cifar", "eps": 1e-4}
    runs = [done("svd-pi", 0, 30.0, **like, group_size=d) for d in (4, 8)]
    source = written(tmp_path, runs).path.read_text("utf-8")
    page = Page(source)
    assert [row[7:] for row in page.rows if len(row) == 9 and row[0]] == [
        ["–", "21.51 ± 0.28 (21.03)"],
        ["–", "21.56 ± 0.35 (21.15)"],
    ]
    assert "nan" not in page.said
    assert ["svd-pi", "1/1", "1/1"] in page.rows
    assert "Table 5" in page.said
    assert "Table 4" not in page.said


def test_the_deviation_says_over_how_many_runs():
    assert "over the 2 seeds; a deviation of two runs" in spread(summarize(RUNS))
    three = [*RUNS, *(done(method, 2, 30.0) for method in ("svd-taylor", "exact", "batchnorm"))]
    assert spread(summarize(three)) == "mean ± standard deviation over the 3 seeds"
    assert "the 2 to 3 finished runs of each row; a deviation of two" in spread(summarize(three[:-1]))
    assert spread(summarize(RUNS[2:3])) == "for a single run each"


def test_a_method_without_some_gradients_is_neither_best_nor_blue():
    at = {"svd": (1e-3,), "exact": (1e-6,)}
    found = GradientErrors("inv_sqrt", (0.1,), at, {"svd": 1e-9, "exact": 1e-6}, {"svd": 3, "exact": 0}, 64)
    (said,) = details([], found)
    assert "the gradient of exact has a relative error of 1×10⁻⁶; svd has no gradient on 3 of 64." in said
    svd, exact = layer_errors(found).rows
    assert (svd.bad, exact.bad) == (True, False)
    for mark in ("dot bad", "× none"):
        assert mark in svd.svg
        assert mark not in exact.svg


def test_runs_that_failed_are_counted_beside_their_steps(tmp_path):
    said = text_of(tmp_path, [*RUNS, done("svd", 2, 30.0)])
    assert "2 runs failed, steps 3 and 4" in said


def test_settings_are_words(tmp_path):
    said = text_of(tmp_path, [done("exact", 0, 30.0, milestones=(1,))])
    for word in ("milestones 1", "nog no", "init –", "hybrid –", "clip off", "train size all", "eps the layer's own"):
        assert f" {word} " in said
    assert "None" not in said
    assert "default" not in said


def test_load_and_all_commands_are_told(tmp_path):
    (tmp_path / "busy").mkdir()
    said = text_of(tmp_path / "busy", load=4.5, commands=["spectralgrad compare --seeds 1", COMMAND])
    assert "spectralgrad compare --seeds 1 spectralgrad compare --seeds 2" in said
    assert "load average4.5" in said
    assert "The load average was 4.5 on 2 cores: other programs were running" in said
    calm = text_of(tmp_path)
    assert COMMAND in calm
    assert "load average0.5" in calm
    assert "other programs" not in calm


def test_one_epoch_is_a_point_for_every_method_and_one_number_on_the_axis():
    short_runs = [Result(r.config.replaced(epochs=1), "done", r.epochs[:1]) for r in RUNS[2:]]
    found = curves(summarize(short_runs), lambda e: e.test_error, "test error")
    assert len(found) == 3
    for panel in found:
        assert panel.svg.count("<circle") == 6
        assert ">1</text>" in panel.svg
        assert ">2</text>" not in panel.svg


def test_the_measured_layer_is_named_with_its_group_size(tmp_path):
    small = Config(train_size=64, batch_size=16, epochs=1, tensorboard=False, threads=1)
    compare(grid(small, methods=("exact",), group_sizes=(8, 16), seeds=(0,)), tmp_path)
    assert "“exact d=16, seed 0”" in Page(report(tmp_path).path.read_text("utf-8")).said


def test_methods_with_parameters_stand_together_after_their_own(tmp_path):
    names = ("svd-taylor", "svd-taylor:degree=19", "svd-taylor:degree=5", "exact")
    runs = [done(name, 0, 30.0, group_size=size) for size in (None, 4) for name in names[::-1]]
    rows = [(row["method"], row["d"]) for row in contents(runs, tmp_path)["rows"]]
    assert rows == [(name, size) for name in names for size in ("4", "all")]


def test_in_covariance_pooling_the_gradient_of_the_features_is_measured(tmp_path):
    """More channels than positions: the covariance is singular and its root has no gradient, the layer has."""
    config = Config(layer="batchnorm", pooling="covariance", reduce_to=None, width=32, train_size=64, batch_size=16,
                    epochs=1, tensorboard=False, threads=1)  # fmt: skip
    train(config, tmp_path)
    layer = trained_layer(tmp_path, config)
    assert layer.matrices.shape == (64, 64, 64)
    found = measure("sqrt", ("exact", "svd-pade", "newton-schulz"), layer, "exact")
    assert found.of_features
    assert not measure("sqrt", ("exact",)).of_features
    assert found.layer["exact"] < 1e-3
    assert found.missing["exact"] == 0
    assert found.layer["newton-schulz"] > 0.01


def test_gradients_of_another_comparison_are_measured_anew(tmp_path):
    written(tmp_path)
    kept = json.loads((tmp_path / "gradients.json").read_text())
    for other in ({**kept, "function": "sqrt", "run": "exact, seed 0"}, {**kept, "run": "exact, seed 9"}, {}, []):
        (tmp_path / "gradients.json").write_text(json.dumps(other))
        report(tmp_path)
        assert json.loads((tmp_path / "gradients.json").read_text()) == kept


def test_the_page_is_made_without_the_images(tmp_path):
    run = done("exact", 0, 20.0, dataset="cifar10", data=str(tmp_path / "away"))
    folder = job_for(run.config, tmp_path).folder
    folder.mkdir(parents=True)
    save(folder, {"model": {"weight": torch.ones(1)}})
    assert contents([run], tmp_path)["gradients"].layer is None
