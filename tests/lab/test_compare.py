"""A comparison: its grid, its results file, the engines, what survives a kill, and the command."""

import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spectralgrad.cli import main
from spectralgrad_lab import Config, Epoch, Failure, Result
from spectralgrad_lab.comparison.grid import DEFAULT, DEMO_METHODS, METHODS, Comparison, compare, grid, job_for
from spectralgrad_lab.comparison.jobs import InProcess, Job, JobError, Processes, Submitit
from spectralgrad_lab.comparison.paired_differences import against
from spectralgrad_lab.comparison.results import RESULTS, ResultsFile, label, run_key, summarize
from spectralgrad_lab.comparison.table import as_text, live_progress
from spectralgrad_lab.training.config.presets import PRESETS
from spectralgrad_lab.training.config.run_config import ConfigError

from .helpers import QUICK, environment, numbers

TINY = Config(train_size=64, batch_size=16, epochs=1, lr=0.05, monitor_every=2, tensorboard=False, threads=1)
FLAGS = ["--train-size", "64", "--batch-size", "16", "--epochs", "1", "--jobs", "1", "--group-sizes", "32"]


def runs(**kwargs):
    return grid(TINY, **{"methods": ("svd", "exact"), "group_sizes": (32,), "seeds": (0,), **kwargs})


def epoch(test_error, number=0, step_ms=20.0, condition=100.0):
    return Epoch(number, 0.1, 1.5, 50.0, 1.2, test_error, 2.0, 500.0, step_ms, condition, 9, "exact")


def ended(error, **config):
    return Result(Config(**config), "done", [epoch(error)])


class Counting(InProcess):
    """Remembers what it was asked to do."""

    def __init__(self, most=None):
        self.asked, self.most = [], most

    def run(self, jobs):
        self.asked = [job.name for job in jobs]
        yield from super().run(jobs[: self.most])
        if self.most is not None:
            raise KeyboardInterrupt


# --- the grid


def test_the_default_grid_is_every_method_twice():
    configs = grid()
    assert [label(config) for config in configs] == [*DEMO_METHODS, *DEMO_METHODS]
    assert [config.seed for config in configs] == [0] * 8 + [1] * 8
    assert {config.dataset for config in configs} == {"fashion"}


def test_batch_normalisation_is_run_once_a_seed_whatever_the_group_sizes():
    configs = grid(TINY, methods=("exact", "batchnorm"), group_sizes=(4, None), seeds=(0, 1))
    assert [(label(c), c.group_size, c.seed) for c in configs] == [
        ("exact", 4, 0), ("exact", None, 0), ("batchnorm", None, 0),
        ("exact", 4, 1), ("exact", None, 1), ("batchnorm", None, 1),
    ]  # fmt: skip


def test_a_method_that_does_not_exist_or_serve_is_refused_before_any_run():
    with pytest.raises(ConfigError, match="unknown method 'svd-tailor'"):
        grid(TINY, methods=("svd-tailor",))
    with pytest.raises(ConfigError, match="to have a parameter `method`"):
        grid(QUICK)


def test_each_method_may_have_its_own_eps():
    """As in TPAMI's Table 4: 1e-4 for power iteration, 1e-2 for the Taylor series."""
    methods = ("pi", "svd-pi", "svd-taylor", "batchnorm")
    configs = grid(TINY, methods, (4, 8), (0,), eps_of={"pi": 1e-4, "svd-pi": 1e-4})
    assert [(label(c), c.eps) for c in configs] == [
        ("pi", 1e-4), ("pi", 1e-4), ("svd-pi", 1e-4), ("svd-pi", 1e-4), ("svd-taylor", None), ("svd-taylor", None),
        ("batchnorm", None),
    ]  # fmt: skip
    results = [ended(20.0 + k, **{n: getattr(c, n) for n in ("method", "eps", "layer")}) for k, c in enumerate(configs)]
    assert {s.method for s in summarize(results)} == {
        "pi eps=0.0001", "svd-pi eps=0.0001", "svd-taylor eps=None", "batchnorm"
    }  # fmt: skip
    for name in ("svd-tailor", "exact", "batchnorm"):
        with pytest.raises(ConfigError, match=f"eps_of: expected spectral methods of this comparison, got {name}"):
            grid(TINY, methods, eps_of={name: 1e-4})


def test_every_run_has_a_folder_of_its_own_and_keeps_it_when_epochs_are_added(tmp_path):
    configs = grid(DEFAULT, group_sizes=(4, 16, None), seeds=(0, 1))
    assert len({job_for(config, tmp_path).folder for config in configs}) == len(configs)
    assert job_for(TINY, tmp_path).folder == job_for(TINY.replaced(epochs=9, threads=2), tmp_path).folder
    assert job_for(TINY, tmp_path).folder != job_for(TINY.replaced(lr=0.01), tmp_path).folder


# --- the results file


def test_a_line_cut_off_by_a_kill_is_left_out_and_the_next_is_whole(tmp_path):
    file = ResultsFile(tmp_path / RESULTS)
    for seed in range(3):
        file.append(ended(30.0, seed=seed))
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-100])
    with pytest.warns(UserWarning, match=r"results.jsonl, line 3 is damaged"):
        assert [r.config.seed for r in file.read()] == [0, 1]
    file.append(ended(31.0, seed=5))
    with pytest.warns(UserWarning, match="line 3"):
        assert [r.config.seed for r in file.read()] == [0, 1, 5]


def test_the_newest_row_of_a_run_counts_and_a_file_that_is_not_there_is_empty(tmp_path):
    file = ResultsFile(tmp_path / RESULTS)
    assert file.read() == []
    file.append(ended(40.0))
    file.append(ended(35.0, threads=2))
    assert [r.final_error for r in file.read()] == [35.0]


def test_what_makes_a_run_the_same_run():
    assert run_key(TINY) == run_key(TINY.replaced(threads=2, workers=2, data="elsewhere", monitor_every=7))
    for other in ({"epochs": 2}, {"eps": 1e-4}, {"method": "svd"}, {"seed": 1}):
        assert run_key(TINY) != run_key(TINY.replaced(**other))


# --- what they come to


def test_a_summary_is_over_the_runs_that_ended():
    failed = Result(Config(seed=2), "failed", [epoch(90.0, step_ms=60.0)], Failure(7, 1, "no"))
    results = [ended(30.0, seed=0), ended(33.0, seed=1), failed]
    (summary,) = summarize(results)
    assert summary.success == pytest.approx(200 / 3)
    assert summary.mean == 31.5
    assert summary.sd == pytest.approx(statistics.stdev([30.0, 33.0]))
    assert summary.best == 30.0
    assert summary.step_ms == 20.0
    assert "2/3" in as_text(results)
    assert "31.50 ± 2.12" in as_text(results)


def test_a_method_that_never_ended_has_no_error_but_a_rate():
    (summary,) = summarize([Result(Config(), "failed", failure=Failure(0, 0, "no"))])
    assert summary.success == 0
    assert math.isnan(summary.mean)
    assert math.isnan(summary.best)


def test_what_else_differs_is_part_of_the_name():
    names = [s.name for s in summarize([ended(30.0, eps=1e-2), ended(31.0, eps=1e-4)])]
    assert names == ["exact eps=0.01", "exact eps=0.0001"]
    names = [s.name for s in summarize([ended(30.0, group_size=4), ended(31.0, group_size=8)])]
    assert names == ["exact d=4", "exact d=8"]


# --- carrying it out


def test_plain_svd_fails_for_want_of_rank_and_is_a_result(tmp_path):
    svd, exact = compare(runs(), tmp_path)
    assert (svd.status, exact.status) == ("failed", "done")
    assert svd.failure.layer == "bn1"
    assert "gradient" in svd.failure.reason
    below = [value for value in svd.failure.spectrum if value < 0.01 * (1 + 1e-4)]
    assert len(svd.failure.spectrum) == 32
    assert len(below) >= 32 - 9  # a 3 × 3 convolution of one channel has rank 9


def test_finished_runs_are_not_run_again(tmp_path):
    configs = runs(methods=("svd", "exact", "batchnorm"))
    engine = Counting(most=1)
    with pytest.raises(KeyboardInterrupt):
        compare(configs, tmp_path, engine=engine)
    assert len(engine.asked) == 3
    again, new = Counting(), []
    results = compare(configs, tmp_path, engine=again, on_result=new.append)
    assert again.asked == engine.asked[1:]
    assert [run_key(r.config) for r in results] == [run_key(c) for c in configs]
    assert len(new) == 2
    assert len((tmp_path / RESULTS).read_text().splitlines()) == 3


@pytest.mark.runs
def test_processes_find_the_same_numbers(tmp_path):
    configs = runs(methods=("svd", "exact", "batchnorm"))
    here = compare(configs, tmp_path / "here")
    apart = compare(configs, tmp_path / "apart", engine=Processes(2))
    for a, b in zip(here, apart, strict=True):
        assert (a.status, repr(numbers(a)), a.failure) == (b.status, repr(numbers(b)), b.failure)


def killer(classes):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.runs
def test_a_killed_process_and_an_impossible_run_are_told(tmp_path):
    killed = Job("killed", TINY.replaced(network="tests.lab.test_compare:killer"), tmp_path / "a")
    with pytest.raises(JobError, match="a process was killed"):
        list(Processes(2).run([killed]))
    odd = Job("odd", TINY.replaced(group_size=7), tmp_path / "b")
    with pytest.raises(JobError, match="odd: expected a group_size that divides"):
        list(Processes(2).run([odd]))
    with pytest.raises(JobError, match="at least one"):
        Processes(0)


@pytest.mark.runs
def test_a_comparison_killed_with_its_processes_goes_on(tmp_path, capsys):
    """After kill −9 no worker stays, no row is lost or doubled, and the rest is done, here by this process."""
    arguments = ["compare", *FLAGS, "--methods", "svd,exact", "--seeds", "2", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "spectralgrad", *arguments, "--jobs", "2"]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        assert wait_until(lambda: children(process.pid))  # on a busy machine all runs may end before the next line
        workers = children(process.pid)
        first = process.stdout.readline()
        workers = {*workers, *children(process.pid)}
        process.kill()
    assert "seed" in first
    rows = (tmp_path / "out" / RESULTS).read_text().splitlines()
    assert wait_until(lambda: not any(map(alive, workers)))
    assert main(arguments) == 0
    assert f"{len(rows)} of them already finished" in capsys.readouterr().out
    found = ResultsFile(tmp_path / "out" / RESULTS).read()
    assert sorted((label(r.config), r.status) for r in found) == [("exact", "done")] * 2 + [("svd", "failed")] * 2
    assert len((tmp_path / "out" / RESULTS).read_text().splitlines()) == 4


@pytest.mark.runs
@pytest.mark.parametrize("ignored", [False, True], ids=["", "in the background"])
def test_ctrl_c_stops_all_runs_at_once_and_keeps_their_checkpoints(tmp_path, ignored):
    """Also those that wait: a worker that has stopped one run does not begin the next.

    Shells start commands in the background with Ctrl-C ignored; then only the workers notice it.
    """
    command = [sys.executable, "-m", "spectralgrad", "compare", *FLAGS, "--epochs", "5000", "--methods", "svd,exact"]
    command += ["--seeds", "4", "--jobs", "2", "--out", str(tmp_path)]
    with subprocess.Popen(
        command,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler),
    ) as process:
        process.stdout.readline()
        assert "svd" in process.stdout.readline()
        assert wait_until(lambda: list(tmp_path.glob("runs/exact*/checkpoint.json")))
        workers = children(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=180)[1]
    assert (process.returncode, said.strip()) == (130, "stopped; run the same command again to continue.")
    assert wait_until(lambda: not any(map(alive, workers)))
    assert [r.config.method for r in ResultsFile(tmp_path / RESULTS).read()] != []


@pytest.mark.runs
def test_an_error_in_one_run_does_not_wait_for_the_end_of_the_others(tmp_path):
    long = Job("long", TINY.replaced(epochs=5000), tmp_path / "long")
    odd = Job("odd", TINY.replaced(group_size=7), tmp_path / "odd")
    began = time.monotonic()
    with pytest.raises(JobError, match="odd: expected a group_size"):
        list(Processes(2).run([long, odd, long]))
    assert time.monotonic() - began < 60


def children(pid):
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def alive(pid):
    state = Path(f"/proc/{pid}/stat")
    try:
        return state.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=180):
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:
        time.sleep(0.1)
    return condition()


@pytest.mark.runs
def test_submitit_carries_out_the_same_jobs(tmp_path):
    pytest.importorskip("submitit")
    jobs = [job_for(config, tmp_path) for config in runs()]
    engine = Submitit(tmp_path / "logs", "local", {"timeout_min": 5})
    found = {done.name: result.status for done, result in engine.run(jobs)}
    assert found == {jobs[0].name: "failed", jobs[1].name: "done"}


def test_without_submitit_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(JobError, match=r"lab\[cluster\]"):
        Submitit(tmp_path)


# --- what is shown meanwhile


class Terminal:
    """A stream that says it is a terminal."""

    def __init__(self):
        self.said = ""

    def write(self, said):
        self.said += said
        return len(said)

    def flush(self):
        pass

    def isatty(self):
        return True


def test_the_live_table_tells_what_waits_runs_and_has_failed(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    configs = runs(methods=("svd", "exact", "batchnorm"))
    comparison = Comparison(configs, tmp_path)
    second = comparison.jobs[1].folder
    second.mkdir(parents=True)
    going = Result(configs[1].replaced(epochs=5), "running", [epoch(40.0)])
    (second / "result.json").write_text(going.to_json())
    terminal = Terminal()
    with live_progress(comparison, terminal):
        comparison.add(configs[0], Result(configs[0], "failed", failure=Failure(0, 0, "no")))
    assert "1 of 3 runs done" in terminal.said
    assert "0/1" in terminal.said
    assert "seed 0: 1/5 epochs" in terminal.said
    assert "waiting" in terminal.said


def test_elsewhere_a_run_is_a_line(tmp_path, capsys):
    with live_progress(Comparison(runs(), tmp_path)) as on_result:
        on_result(ended(30.0, group_size=16, seed=4))
    assert capsys.readouterr().out == "exact d=16 seed 4: done, error 30.00 % after 1 epoch\n"


# --- the command


def test_the_command_ends_with_a_table_a_page_and_status_zero(tmp_path, capsys):
    command = ["compare", *FLAGS, "--methods", "svd,exact,batchnorm", "--seeds", "1", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "svd failed in its only run. Both runs of the other 2 methods finished." in said
    assert (tmp_path / "out" / "report.html").exists()
    session = json.loads((tmp_path / "out" / "session.json").read_text())
    assert session["commands"][-1].startswith("spectralgrad compare --train-size 64")
    assert main(command) == 0
    assert "3 of them already finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--methods", "svd-tailor"], "unknown method"),
        (["--group-sizes", "0"], "positive whole number"),
        (["--group-sizes", "7"], "divides"),
        (["--seeds", "x,y"], "number of seeds"),
        (["--jobs", "0"], "positive whole number"),
        (["--dataset", "mnist"], "expected a dataset of fashion, "),
        (["--network", "tests.lab.helpers:tiny"], "to have a parameter `method`"),
        (["--cluster", "slurm", "--cluster-options", "x"], "NAME=VALUE"),
        (["--lr", "-1"], "≥ 0"),
        (["--eps-of", "svd-pi"], "such as svd-pi=1e-4"),
        (["--eps-of", "svd-pi=small"], "such as svd-pi=1e-4"),
        (["--eps-of", "pi=1e-4"], "expected spectral methods of this comparison, got pi"),
        (["--eps-of", "svd-pi=-1"], "≥ 0"),
        (["--form", "printed"], "sound"),
    ],
)
def test_wrong_usage_is_told_before_training(arguments, said, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["compare", *FLAGS, "--out", str(tmp_path / "out"), *arguments])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def planned(monkeypatch, *arguments):
    """The runs that a command would carry out."""
    seen = []

    def stop(configs):
        seen.extend(configs)
        raise ConfigError("seen")

    monkeypatch.setattr("spectralgrad_lab.commands.compare._check", stop)
    with pytest.raises(SystemExit):
        main(["compare", *arguments])
    return seen


def test_a_preset_brings_its_group_size_its_form_and_pi(monkeypatch, tmp_path):
    configs = planned(monkeypatch, "--preset", "tpami-cifar10", "--seeds", "1", "--eps-of", "pi=1e-4,svd-pi=1e-4")
    assert [label(c) for c in configs] == list(METHODS)
    assert {c.group_size for c in configs} == {None}
    assert {c.form for c in configs} == {"published"}
    assert {label(c): c.eps for c in configs if c.eps != 1e-2} == {"pi": 1e-4, "svd-pi": 1e-4}
    assert {c.form for c in planned(monkeypatch, "--preset", "tpami-cifar10", "--form", "sound")} == {"sound"}
    (tmp_path / "mine.toml").write_text("group_size = 8\n")
    assert {c.group_size for c in planned(monkeypatch, "--config", str(tmp_path / "mine.toml"))} == {8, None}
    assert {c.group_size for c in planned(monkeypatch, "--preset", "small", "--group-sizes", "4")} == {4, None}


def test_the_demo_keeps_its_methods_and_its_group_size(monkeypatch):
    configs = planned(monkeypatch, "--seeds", "1")
    assert [label(c) for c in configs] == list(DEMO_METHODS)
    assert "pi" not in DEMO_METHODS
    assert {c.group_size for c in configs if label(c) != "batchnorm"} == {16}
    assert {c.form for c in configs} == {"sound"}


def test_the_form_and_eps_of_a_comparison_are_recorded_and_shown(tmp_path, capsys):
    command = ["compare", *FLAGS, "--methods", "svd-pi,svd-taylor", "--seeds", "1", "--form", "published"]
    assert main([*command, "--eps-of", "svd-pi=1e-4", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "svd-pi eps=0.0001" in said
    assert "svd-taylor eps=0.01" in said
    assert "The methods ran in the published form." in (tmp_path / "report.html").read_text("utf-8")
    found = ResultsFile(tmp_path / RESULTS).read()
    assert {(r.config.method, r.config.eps, r.config.form) for r in found} == {
        ("svd-pi", 1e-4, "published"), ("svd-taylor", 1e-2, "published")
    }  # fmt: skip


def test_missing_images_are_told_before_training(tmp_path, capsys):
    assert main(["compare", "--dataset", "cifar10", "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert "data_batch_1.bin" in capsys.readouterr().err
    assert not (tmp_path / "out" / RESULTS).exists()


def test_help_has_examples_and_the_defaults_of_the_comparison(capsys):
    for command in ("compare", "report"):
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0
        said = capsys.readouterr().out
        assert "examples:" in said
        if command == "compare":
            assert f"(default: {DEFAULT.train_size})" in said
            assert "--seed " not in said


def test_a_network_of_ones_own_that_takes_the_method_is_compared(tmp_path, monkeypatch):
    (tmp_path / "compared_nets.py").write_text(
        "from torch import nn\nfrom spectralgrad.nn import DecorrelatedBatchNorm2d\n"
        "def net(classes, method):\n    return nn.Sequential(nn.Conv2d(1, 64, 3), "
        "DecorrelatedBatchNorm2d(64, method=method), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    base = TINY.replaced(network="compared_nets:net", eps=None)
    results = compare(grid(base, methods=("svd", "exact"), group_sizes=(None,), seeds=(0,)), tmp_path / "out")
    assert [result.status for result in results] == ["failed", "done"]
    with pytest.raises(ConfigError, match="batchnorm needs a parameter `layer` of"):
        grid(base, methods=("exact", "batchnorm"))


def test_parameters_of_a_method_make_another_method(tmp_path):
    results = [ended(20.0, method="svd-taylor"), ended(21.0, method="svd-taylor:degree=19")]
    assert [summary.label for summary in summarize(results)] == ["svd-taylor", "svd-taylor:degree=19"]
    assert ":" not in job_for(results[1].config, tmp_path).name


def test_treatments_are_told_apart():
    results = [ended(20.0), ended(21.0, nog=True), ended(22.0, layer="denoising", method="svd-pade"),
               ended(23.0, layer="batchnorm")]  # fmt: skip
    found = [(summary.label, summary.extra) for summary in summarize(results)]
    assert found == [
        ("exact", "layer=whitening, nog=False"),
        ("exact", "layer=whitening, nog=True"),
        ("svd-pade", "layer=denoising, nog=False"),
        ("batchnorm", ""),
    ]
    plain = [ended(20.0), ended(23.0, layer="batchnorm", nog=False)]
    assert [summary.extra for summary in summarize(plain)] == ["", ""]


def test_other_images_and_another_stopping_rule_make_another_run():
    folder = Config(dataset="folder", data="a")
    assert run_key(folder) != run_key(folder.replaced(data="b"))
    assert run_key(Config(dataset="cifar10", data="a")) == run_key(Config(dataset="cifar10", data="b"))
    assert run_key(Config(patience=0)) != run_key(Config(patience=3))


def test_a_shorter_run_than_the_one_there_is_refused(tmp_path):
    longer = runs(methods=("exact",))
    compare([longer[0].replaced(epochs=2)], tmp_path)
    with pytest.raises(ConfigError, match="contains a longer run of 2 epochs"):
        compare(longer, tmp_path)
    assert len(ResultsFile(tmp_path / RESULTS).read()) == 1


def test_a_table_of_all_results_and_all_commands_are_kept(tmp_path, capsys):
    for method in ("exact", "svd-clip"):
        assert (
            main(
                ["compare", *FLAGS, "--methods", method, "--seeds", "3,", "--out", str(tmp_path), "--note", "By night."]
            )
            == 0
        )
    last = capsys.readouterr().out.split("in " + str(tmp_path))[-1]
    assert "exact " in last
    assert "svd-clip " in last
    session = json.loads((tmp_path / "session.json").read_text("utf-8"))
    assert "By night." in (tmp_path / "report.html").read_text("utf-8")
    assert [command.split("--methods ")[1].split()[0] for command in session["commands"]] == ["exact", "svd-clip"]
    assert {result.config.seed for result in ResultsFile(tmp_path / RESULTS).read()} == {3}


def test_methods_by_default_are_those_that_serve_the_layer(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("spectralgrad_lab.commands.compare.grid", lambda *given: asked.append(given[1]) or [])
    with contextlib.suppress(IndexError):
        main(["compare", *FLAGS, "--layer", "denoising", "--out", str(tmp_path)])
    assert "svd-pade" in asked[0]
    assert not {"exact", "newton-schulz"} & set(asked[0])


def test_errors_that_are_not_finite_have_no_deviation():
    summary = summarize([ended(math.inf), ended(20.0, seed=1)])[0]
    assert math.isnan(summary.sd)


def test_a_hybrid_schedule_of_any_length_has_a_folder(tmp_path):
    config = PRESETS["iccv-resnet50"].replaced(hybrid="svd-pade")
    assert job_for(config, tmp_path).name.startswith("newton-schulz-to-svd-pade-seed0-")
    assert job_for(config.replaced(epochs=70), tmp_path).name == job_for(config, tmp_path).name


def test_pooling_alone_has_no_groups():
    base = TINY.replaced(layer="batchnorm", pooling="covariance", reduce_to=None)
    assert [c.group_size for c in grid(base, methods=("exact",), group_sizes=(8, 16), seeds=(0,))] == [None]


def test_pairs_are_of_the_same_settings():
    settings = [(epochs, seed, method) for epochs in (1, 9) for seed in (0, 1) for method in ("exact", "svd-pi")]
    results = [ended(20.0 + 10 * (n == 1), epochs=n, seed=seed, method=method) for n, seed, method in settings]
    results += [ended(33.0, layer="batchnorm", epochs=1), ended(22.0, layer="batchnorm", epochs=9)]
    found = {pairs.label: pairs.differences for pairs in against(results)}
    assert found == {"exact": (0.0,) * 4, "svd-pi": (0.0,) * 4, "batchnorm": (3.0, 2.0)}


def test_a_file_of_a_run_is_read_as_it_was_written(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("spectralgrad_lab.commands.compare.grid", lambda *given: asked.append(given[0]) or [])
    wanted = Config(dataset="cifar10", data="DIR")
    (tmp_path / "mine.toml").write_text(wanted.to_toml(), "utf-8")
    with contextlib.suppress(IndexError):
        main(["compare", "--config", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out")])
    assert asked == [wanted]
