"""Items that train: each run once, resumed after anything, evaluated without data, and as many runs as planned."""

import json
import math
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from spectralgrad import cli
from spectralgrad.cli.parser import parser
from spectralgrad_lab import Config, Epoch, Failure, Result
from spectralgrad_lab.comparison.paired_differences import paired
from spectralgrad_lab.comparison.results import RESULTS, ResultsFile, Summary
from spectralgrad_lab.data import as_dataset
from spectralgrad_lab.networks import build
from spectralgrad_lab.papers import convergence, small_protocol
from spectralgrad_lab.papers.eccv import longer_training
from spectralgrad_lab.papers.gradients import whitened_features
from spectralgrad_lab.papers.items import ItemError, all_items, select
from spectralgrad_lab.papers.outcomes import read_all, write
from spectralgrad_lab.papers.pages import write_pages
from spectralgrad_lab.papers.registry import train_of
from spectralgrad_lab.papers.run_item import UNFINISHED, run
from spectralgrad_lab.papers.small_protocol import seeded
from spectralgrad_lab.papers.training import Setup, Training
from spectralgrad_lab.papers.verdicts import AGREES, NOT_SEEN, OPPOSITE, TRENDS

from .helpers import QUICK, environment

ITEMS = [item for item in all_items() if item.kind == "training"]
RUNS = {
    "tpami/training-table-3": 3 * 8,
    "tpami/training-table-4": 6 * 5 * 3,
    "tpami/training-table-5": 4 * 5,
    "tpami/training-power-iteration": 5 * 15,
    "tpami/training-pooling": 3 * 3,
    "tpami/training-released-svd": 5 * 3,
    "tpami/training-all-eigenvectors": 5 * 3 * 3,
    "tpami/training-longer": (2 * 2 + 2) * 3,
    "tpami/figure-5": 3 * 8,
    "tpami/figure-6": 6 * 5 * 3,
    "tpami/training-table-8": 3,
    "tpami/training-table-9": 3,
    "tpami/figure-9": 3,
    "tpami/figure-10": 3,
    "iccv/training-table-2": (7 + 4 + 2) * 3,
    **dict.fromkeys([f"iccv/figure-{n}" for n in ("1", "2-left", "4-left", "5")], (7 + 4 + 2) * 3),
    "iccv/training-seeds": (7 + 4 + 2) * 3,
    "iccv/training-smoothness": 6 * 3,
    "iccv/training-table-11": (4 + 1) * 3,
    "iccv/training-precision": 4 * 5,
    "iccv/training-condition": 2 * 5,
    "iccv/training-hybrid": (2 + 6) * 5,
    "neurips/training-table-4": (6 + 5 + 1) * 3,
    "neurips/training-table-5": 4 * 5,
    "neurips/figure-2": 2 * 2 * 5,
    "neurips/figure-4": 4 * 5,
    "eccv/training-tables": 14 * 3,
    "eccv/training-treatments": 6 * 5,
    "eccv/training-orthogonal-weights": 3 * 5,
    "gradients/training-whitened-features": 8 * 2 * 3,
}
[TABLE_3] = select(["tpami/training-table-3"])
SETTINGS = {"plain": seeded(QUICK, 2), "clipped": seeded(QUICK.replaced(clip=1.0), 1)}


def result(config, error=40.0):
    measured = {
        "ties": 2.0, "smallest_gap": 1e-6, "smoothness": 3.0, "first_ratio": 1.5, "condition_clamped": 1e9,
        "condition_bare": 1e12,
    }  # fmt: skip
    epochs = [
        Epoch(i, 0.1, 1.5, error + 10 - 2 * i, 1.2, error + 2 - i, 2.0, 500.0, 20.0, 100.0, measured=measured)
        for i in range(3)
    ]
    if config.method == "svd" and config.seed == 1:
        return Result(config, "failed", epochs[:1], Failure(90, 1, "the gradient is not finite"), seconds=10.0)
    return Result(config, "done", epochs, seconds=20.0)


def translated(number):
    """What is measured of a translation run; the third one fails."""
    scores = {d: {"accuracy": 60.0 + number, "sharpness": 8.0 + number} for d in ("photos", "paintings")}
    run = {"failure": None, "steps": 600, "seconds": 9.0, "losses": {"cycle": 0.2}}
    measured = {"real": scores, "translated": scores, "pictures": {"photos": 11, "paintings": 4}, "crops": 200}
    lost = {"failure": "not finite", "translated": dict.fromkeys(scores), "losses": {}}
    return {**run, **measured, **(lost if number == 2 else {})}


def test_curves_and_the_difference_of_two_settings_epoch_by_epoch():
    """Paired by seed; the standard error is the standard deviation of n differences, divided by √n."""
    of = lambda errors: Summary("", None, "", tuple(result(QUICK.replaced(seed=s), e) for s, e in errors.items()))  # noqa: E731
    one, other = of({0: 41.0, 1: 44.0, 2: 40.0, 3: 70.0}), of({0: 40.0, 1: 41.0, 2: 44.0, 5: 10.0})
    means, errors = convergence.apart(one, other, convergence.TEST)
    assert means == [0.0] * 3  # of 1, 3 and −4
    assert errors == [round((26 / 2 / 3) ** 0.5, 3)] * 3
    means, errors = convergence.apart(one, of({0: 40.5}), convergence.TEST)
    assert means == [0.5] * 3
    assert all(math.isnan(x) for x in errors)
    assert convergence.curves({"a": other}, ["a"], convergence.TEST) == [[33.75 + 2 - i for i in range(3)]]


def test_how_much_errors_rise_and_how_far_settings_move_apart():
    of = lambda *runs: Summary("", None, "", tuple(map(with_errors, range(len(runs)), runs)))  # noqa: E731
    one, other = of((50.0, 52.0, 51.0), (50.0, 49.0, 53.0)), of((50.0, 49.0, 48.0), (50.0, 50.0, 51.0))
    assert convergence.unsteadiness(one, other, convergence.TEST) == (2.5, 0.5)  # 2 − 0 and 4 − 1
    assert convergence.moved_apart(one, other, convergence.TEST) == (2.5, 0.5)  # 51 − 48 and 53 − 51


def with_errors(seed, errors):
    """A run with these test errors."""
    epochs = [Epoch(i, 0.1, 1.5, error, 1.2, error, 2.0, 500.0, 20.0, 100.0) for i, error in enumerate(errors)]
    return Result(QUICK.replaced(seed=seed), "done", epochs, seconds=1.0)


class Planned(Training):
    """Trains nothing: errors grow with the number of the setting and with the seed."""

    def run(self, settings):
        for configs in settings.values():
            assert all(config.data is None and config.dataset == "cifar10" for config in configs)
            assert [config.seed for config in configs] == list(range(len(configs)))
            build(configs[0], 3, 32, 10)
        made = {n: [result(c, 40.0 + i + c.seed) for c in of] for i, (n, of) in enumerate(settings.items())}
        self.count.append(sum(map(len, made.values())))
        return {name: Summary(name, None, "", tuple(found)) for name, found in made.items()}

    def each(self, function, tasks):
        self.count.append(len(tasks))
        if self.item.needs == "photographs and paintings":
            return [translated(i) for i, _ in enumerate(tasks)]
        if self.item.paper == "eccv":
            made = [result(longer_training.config(t["treatment"], t["seed"]), 40.0 + t["seed"]) for t in tasks]
            return [{"result": run.to_dict(), "renewed": run.final_error - 1} for run in made]
        lost = {"error": None, "loss": None, "steps": 0, "tied_at_start": 32, "tied_at_end": 32, "seconds": 0.1}
        lost |= {"smallest_gap": 1e-3, "largest_gradient": 5.0, "median_gradient": 1.0, "gap_at_largest": 0.1}
        lost |= {"at_eps": 3, "ties": 1}
        return [
            lost if task["method"].startswith("svd, ") or task["method"] == "svd"
            else {**lost, "error": 60.0 + task["seed"], "loss": 1.4, "steps": 234}
            for task in tasks
        ]  # fmt: skip


class Plan(Setup):
    def of(self, item):
        planned = Planned(item, self.results, self)
        object.__setattr__(planned, "count", self.count)
        return planned


def planned(item, tmp_path):
    plan = Plan(tmp_path)
    object.__setattr__(plan, "count", [])
    return run(item, plan), plan.count


class TestItems:
    def test_each_has_a_known_number_of_runs(self):
        assert {item.key for item in ITEMS} == set(RUNS)

    @pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.key)
    def test_runs_are_evaluated(self, item, tmp_path):
        outcome, count = planned(item, tmp_path)
        assert sum(count) == RUNS[item.key]
        assert all(judged.as_expected for judged in outcome.judged)
        assert outcome.verdict in (TRENDS if item.is_experiment else (AGREES,))
        assert "{" not in outcome.reason
        assert len({len(j.value) for j in outcome.judged if isinstance(j.value, list)}) <= 3
        write(outcome, tmp_path)
        json.loads((tmp_path / item.paper / f"{item.id}.json").read_text("utf-8"))

    @pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.key)
    def test_its_full_size_command_is_one(self, item):
        for command in item.command.split(" && ") if item.command else ():
            name, *arguments = shlex.split(command, comments=True)
            assert name == "spectralgrad"
            assert parser().parse_args(arguments).command in ("compare", "transfer")

    def test_published_numbers_stand_beside_ours(self, tmp_path):
        outcome, _ = planned(TABLE_3, tmp_path)
        success = outcome.judged[0]
        assert success.quantity.published == ["50", "87.5", "100"]
        assert (success.value, success.verdict) == ([100.0] * 3, NOT_SEEN)

    def test_verdicts_follow_from_the_runs(self, tmp_path):
        """The first setting has the lowest planned error, with every seed; the paper's has the highest."""
        outcome, _ = planned(TABLE_3, tmp_path)
        (difference,) = (j for j in outcome.judged if j.quantity.name == "difference")
        assert (difference.value, difference.quantity.published) == (-2.0, "0.17")
        assert difference.verdict == outcome.verdict == OPPOSITE

    def test_a_failed_run_is_counted_with_its_reason(self, tmp_path):
        outcome, _ = planned(select(["tpami/training-table-4"])[0], tmp_path)
        assert outcome.values["svd_success"] == [pytest.approx(200 / 3)] * 5
        assert "svd d=4 1/3" in outcome.reason
        assert "the gradient is not finite: 5" in outcome.reason
        assert outcome.values["exact_difference"] == [0.0] * 5

    def test_curves_are_of_the_settings_that_they_name(self, tmp_path):
        """The errors of the planned runs are 40 + number of the setting + seed in the last epoch."""
        values = planned(select(["tpami/figure-5"])[0], tmp_path)[0].values
        assert values["difference"] == [-2.0] * 3
        assert values["standard_error"] == [0.0] * 3
        assert values["train"][1] == [54.5, 52.5, 50.5]
        values = planned(select(["tpami/figure-6"])[0], tmp_path)[0].values
        assert all(len(values[f"train_{d}"]) == len(values["methods"]) for d in values["d"])
        assert set(values["standard_error"]) == {0.0}
        values = planned(select(["iccv/figure-2-left"])[0], tmp_path)[0].values
        assert set(values["standard_error"]) == {0.0}
        assert values["difference"] == [
            values["train"][values["settings"].index(name)][-1]
            - values["train"][values["settings"].index(name.partition(",")[0])][-1]
            for name in values["settings"]
            if "," in name
        ]

    @pytest.mark.parametrize(("key", "name"), [("2-left", "difference"), ("4-left", "ahead"), ("5", "difference")])
    def test_differences_are_of_the_last_epoch(self, key, name, tmp_path, monkeypatch):
        """Of settings that are apart in the last epoch only, the more the larger the seed is."""
        plain = result

        def drifting(config, error):
            found, apart = plain(config), (error - 40 - config.seed) * config.seed
            last = found.epochs[-1]
            found.epochs[-1] = replace(last, train_error=last.train_error + apart, test_error=last.test_error + apart)
            return found

        monkeypatch.setattr(sys.modules[__name__], "result", drifting)
        values = planned(select([f"iccv/figure-{key}"])[0], tmp_path)[0].values
        assert all((x != 0) == (e > 0) for x, e in zip(values[name], values["standard_error"], strict=True))
        assert sum(e > 0 for e in values["standard_error"]) >= len(values["standard_error"]) - (key == "4-left")

    def test_ties_and_gaps_of_longer_runs(self, tmp_path):
        outcome, _ = planned(select(["tpami/training-longer"])[0], tmp_path)
        assert (outcome.values["ties"], outcome.values["smallest_gap"]) == (2.0, 1e-6)

    def test_the_page_has_the_command_of_the_full_size(self, tmp_path):
        write(planned(TABLE_3, tmp_path)[0], tmp_path)
        write_pages(read_all(tmp_path), tmp_path, tmp_path / "pages")
        page = (tmp_path / "pages" / "tpami.md").read_text("utf-8")
        assert f"At full size, on a machine with a GPU:\n\n    {TABLE_3.command}\n" in page
        assert "`spectralgrad reproduce tpami/training-table-3 --data DIR`" in page


def small_training(folder, jobs=1, report=lambda line: None):
    return Setup(folder, None, jobs, report).of(replace(TABLE_3, needs=""))


def stored(folder):
    return (folder / "tpami" / "training-table-3" / RESULTS).read_text("utf-8").splitlines()


class TestRuns:
    def test_an_interrupted_item_goes_on_and_trains_nothing_twice(self, tmp_path):
        def stop(line):
            if "1/3" in line:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            small_training(tmp_path, report=stop).run(SETTINGS)
        before, lines = stored(tmp_path), []
        assert len(before) == 1
        found = small_training(tmp_path, report=lines.append).run(SETTINGS)
        assert lines[0] == "tpami/training-table-3: 3 runs, 1 of them done already; 1 at a time"
        assert [line.partition(": error")[0] for line in lines[1:]] == [
            "  2/3  clipped, seed 0",
            "  3/3  plain, seed 1",
        ]
        assert stored(tmp_path)[:1] == before
        assert [len(found[name].done) for name in SETTINGS] == [2, 1]
        lines.clear()
        small_training(tmp_path, report=lines.append).run(SETTINGS)
        assert (lines, len(stored(tmp_path))) == ([], 3)

    def test_finished_seeds_are_evaluated_without_training(self, tmp_path):
        so_far = replace(small_training(tmp_path).setup, so_far=True).of(TABLE_3)
        with pytest.raises(ItemError, match="there is no seed for which all runs are done"):
            so_far.run(SETTINGS)
        small_training(tmp_path).run({name: configs[:1] for name, configs in SETTINGS.items()})
        before = stored(tmp_path)
        found = so_far.run(SETTINGS)
        assert [len(found[name].done) for name in SETTINGS] == [1, 1]
        assert so_far.unfinished == ["1 of 2 seeds"]
        assert stored(tmp_path) == before

    def test_an_unfinished_item_says_so(self, tmp_path):
        outcome, _ = planned(TABLE_3, tmp_path)
        write(replace(outcome, values={**outcome.values, UNFINISHED: "3 of 8 seeds"}), tmp_path)
        write_pages(read_all(tmp_path), tmp_path, tmp_path / "pages", pictures=False)
        page = (tmp_path / "pages" / "tpami.md").read_text("utf-8")
        assert page.count("(3 of 8 seeds) |") == 1
        assert "*Not finished*: 3 of 8 seeds. `spectralgrad reproduce tpami/training-table-3 --data DIR`" in page

    @pytest.mark.runs
    def test_a_killed_item_goes_on(self, tmp_path):
        script = (
            "from pathlib import Path\nfrom tests.lab.test_paper_training import SETTINGS, small_training\n"
            f"small_training(Path({str(tmp_path)!r}), report=lambda line: print(line, flush=True)).run(SETTINGS)"
        )
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment()) as process:
            while b"1/3" not in process.stdout.readline():
                assert process.poll() is None
            os.kill(process.pid, signal.SIGKILL)
        before = stored(tmp_path)
        small_training(tmp_path).run(SETTINGS)
        assert (stored(tmp_path)[: len(before)], len(stored(tmp_path))) == (before, 3)

    def test_the_first_seed_of_all_settings_comes_first(self, tmp_path):
        small_training(tmp_path).run(SETTINGS)
        found = ResultsFile(tmp_path / "tpami" / "training-table-3" / RESULTS).read()
        assert [(r.config.clip, r.config.seed) for r in found] == [(None, 0), (1.0, 0), (None, 1)]

    def test_results_name_no_folder_of_the_data(self, tmp_path, monkeypatch):
        seen = []

        def carry_out(job):
            seen.append(job.config.data)
            return result(job.config)

        monkeypatch.setattr("spectralgrad_lab.comparison.jobs.carry_out", carry_out)
        config = Config(dataset="cifar10")
        Setup(tmp_path, tmp_path / "images", 1, lambda line: None).of(TABLE_3).run({"one": [config]})
        assert seen == [str(tmp_path / "images")]
        assert "images" not in stored(tmp_path)[0].replace("images_per_second", "")

    def test_missing_data(self, tmp_path):
        with pytest.raises(ItemError, match=r"24 of 24 runs left, which need CIFAR-10: --data DIR\. CIFAR-10 is at"):
            run(TABLE_3, Setup(tmp_path))

    def test_without_a_setup(self):
        with pytest.raises(ItemError, match="tpami/training-table-3: expected a setup for its training runs"):
            run(TABLE_3)

    def test_finished_runs_are_evaluated_without_data(self, tmp_path, capsys):
        class Keep(Planned):
            def run(self, settings):
                for configs in settings.values():
                    for config in configs:
                        file.append(result(config))
                return super().run(settings)

        file = ResultsFile(tmp_path / "tpami" / "training-table-3" / RESULTS)
        file.path.parent.mkdir(parents=True)
        keep = Keep(TABLE_3, file.path.parent, Setup(tmp_path))
        object.__setattr__(keep, "count", [])
        train_of(TABLE_3.key)(keep)
        assert cli.main(["reproduce", TABLE_3.key, "--results", str(tmp_path)]) == 0
        said = capsys.readouterr().out
        assert NOT_SEEN in said
        assert "full size, with a GPU:  spectralgrad compare --preset tpami-cifar100" in " ".join(said.split("\n"))

    def test_the_command_says_what_is_missing(self, tmp_path, capsys):
        assert cli.main(["reproduce", TABLE_3.key, "--results", str(tmp_path)]) == 1
        assert "--data DIR" in " ".join(capsys.readouterr().out.split())

    def test_the_command_says_how_to_go_on(self, tmp_path, capsys, monkeypatch):
        def stop(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr("spectralgrad_lab.papers.command.run", stop)
        assert cli.main(["reproduce", TABLE_3.key, "--results", str(tmp_path)]) == 130
        assert "run the same command again to continue" in capsys.readouterr().out


def squared(task):
    with Path(task["log"]).open("a") as log:
        log.write(f"{task['x']}\n")
    return {"square": task["x"] ** 2, "process": os.getpid()}


class TestTasks:
    @pytest.mark.runs
    @pytest.mark.parametrize("jobs", [1, 2])
    def test_each_once(self, jobs, tmp_path):
        log = tmp_path / "log"
        tasks = [{"x": x, "log": str(log)} for x in (3, 1, 2)]
        small_training(tmp_path).each(squared, tasks[:1])
        found = small_training(tmp_path, jobs).each(squared, tasks)
        assert [values["square"] for values in found] == [9, 1, 4]
        assert sorted(log.read_text().split()) == ["1", "2", "3"]
        assert (os.getpid() in {values["process"] for values in found[1:]}) == (jobs == 1)
        assert len(stored(tmp_path)) == 3

    def test_those_of_finished_seeds(self, tmp_path):
        tasks = [{"x": x, "seed": seed, "log": str(tmp_path / "log")} for seed in (0, 1) for x in (3, 4)]
        small_training(tmp_path).each(squared, tasks[:3])
        assert small_training(tmp_path).ready(tasks) == tasks
        so_far = replace(small_training(tmp_path).setup, so_far=True).of(TABLE_3)
        assert so_far.ready(tasks) == tasks[:2]
        assert so_far.unfinished == ["1 of 2 seeds"]


class TestWhitenedFeatures:
    @pytest.fixture
    def learn(self, monkeypatch):
        torch.manual_seed(0)
        images = torch.randint(0, 256, (256, 3, 32, 32), dtype=torch.uint8)
        data = as_dataset(((images, torch.arange(256) % 10), (images, torch.arange(256) % 10)))
        monkeypatch.setattr(whitened_features, "_images", lambda _: data)
        monkeypatch.setattr(whitened_features, "EPOCHS", 1)
        return lambda method, outputs: whitened_features.learn(
            {"method": method, "outputs": outputs, "seed": 0, "data": ""}
        )

    @pytest.mark.parametrize("outputs", whitened_features.OUTPUTS)
    def test_all_eigenvalues_are_tied_at_the_start(self, outputs, learn):
        found = learn("exact", outputs)
        assert found["tied_at_start"] == outputs
        assert found["steps"] == 2
        assert 0 <= found["error"] <= 100

    def test_the_plain_gradient_is_not_finite_there(self, learn):
        assert (learn("svd", 32)["error"], learn("svd", 32)["steps"]) == (None, 0)

    def test_without_training(self, learn):
        assert learn("untrained", 32)["steps"] == 0


class TestDifferences:
    def test_by_seed(self):
        ours, theirs = (
            Summary(name, None, "", tuple(result(Config(method="exact", seed=s), e) for s, e in enumerate(errors)))
            for name, errors in (("ours", (40.0, 42.0)), ("theirs", (41.0, 41.0, 90.0)))
        )
        found = {"ours": ours, "theirs": theirs}
        assert paired(ours, theirs).differences == (-1.0, 1.0)
        assert small_protocol.difference(found, "ours", "theirs") == "+0.00 ± 1.00"
        assert small_protocol.largest(found, ["ours", "theirs"], "theirs") == "none"
        assert small_protocol.failures(found) == "none"
        assert small_protocol.seconds(found) == 100.0

    def test_runs_that_failed_have_no_partner(self):
        lost = Summary("lost", None, "", (result(Config(method="svd", seed=1)),))
        found = {"lost": lost, "exact": Summary("exact", None, "", (result(Config(seed=1)),))}
        assert small_protocol.difference(found, "lost", "exact") == "no pair of finished runs"
        assert small_protocol.failures(found) == "lost 1/1 (the gradient is not finite: 1)"
