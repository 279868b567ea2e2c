"""The command line as a user meets it."""

import inspect
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import spectralgrad as sg
from spectralgrad import solvers
from spectralgrad.cli import main


def test_info_names_versions_solver_and_every_method(capsys):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    for word in (sg.__version__, torch.__version__, "threads", "instruction set", "eigensolver", *sg.methods()):
        assert word in out


def test_info_recommends_the_defaults_and_methods_that_exist(capsys):
    assert main(["info"]) == 0
    advice = capsys.readouterr().out.split("which method to use\n")[1].split("\n\n")[0]
    defaults = {inspect.signature(f).parameters["method"].default for f in (sg.matrix_sqrt, sg.polar, sg.eigh, sg.svd)}
    named = {word for word in re.findall(r"[a-z]+(?:-[a-z]+)*", advice) if word in sg.methods()}
    assert defaults <= named
    assert {"newton-schulz", "polar-express"} <= named


def test_conformance_prints_and_writes(capsys, tmp_path):
    target = tmp_path / "out.json"
    assert main(["conformance", "--sizes", "2", "--function", "sqrt", "--json", str(target)]) == 0
    assert "50-digit reference" in capsys.readouterr().out
    assert json.loads(target.read_text())["results"][0]["function"] == "sqrt"
    assert list(tmp_path.iterdir()) == [target]


def test_conformance_into_a_missing_folder_says_so_before_working(capsys, tmp_path):
    assert main(["conformance", "--sizes", "2", "--json", str(tmp_path / "missing" / "out.json")]) == 1
    captured = capsys.readouterr()
    assert "does not exist; create it first" in captured.err
    assert captured.out == ""


def test_inspect_reads_npy_and_refuses_pickles(capsys, tmp_path):
    good, bad = tmp_path / "good.npy", tmp_path / "bad.npy"
    np.save(good, np.eye(3))
    np.save(bad, np.array([object()]), allow_pickle=True)
    assert main(["inspect", str(good), "--method", "svd-taylor"]) == 0
    assert "method svd-taylor" in capsys.readouterr().out
    assert main(["inspect", str(bad)]) == 1
    assert "allow_pickle" in capsys.readouterr().err
    assert main(["inspect", str(good), "--method", "svd-tailor"]) == 1
    assert "unknown method 'svd-tailor'" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "none.npy")]) == 1


@pytest.mark.parametrize(
    "arguments", [[], ["conformance", "--sizes", "7"], ["conformance", "--sizes", "x"], ["nonsense"]]
)
def test_wrong_usage_exits_with_two(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "usage: spectralgrad" in capsys.readouterr().err


def test_help_describes_every_command(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert all(command in out for command in ("info", "conformance", "inspect"))


def test_module_runs_and_importing_loads_no_more_than_torch():
    version = subprocess.run(
        [sys.executable, "-m", "spectralgrad", "--version"], capture_output=True, text=True, check=True
    )
    assert version.stdout.strip() == f"spectralgrad {sg.__version__}"
    code = (
        "import sys, torch; before = set(sys.modules); import spectralgrad; print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {name.split(".")[0] for name in loaded} <= {"spectralgrad", "numpy", *sys.stdlib_module_names}


def test_tune_calls_the_solvers_or_says_there_is_nothing(monkeypatch, capsys):
    monkeypatch.setattr(solvers, "tune", lambda progress: progress("d = 3") or "the table")
    assert main(["tune"]) == 0
    assert capsys.readouterr().out.split("\n") == ["d = 3", "", "the table", ""]

    def absent(progress):
        raise RuntimeError("no kernel")

    monkeypatch.setattr(solvers, "tune", absent)
    assert main(["tune"]) == 0
    assert "nothing to tune: no kernel" in capsys.readouterr().out


@pytest.mark.parametrize("device", ["cuda", "mps", "xpu"])
def test_tune_says_that_accelerators_have_no_thresholds(device, capsys):
    assert main(["tune", "--device", device]) == 0
    said = capsys.readouterr().out
    assert said.startswith(
        f"nothing to tune on {device}: all thresholds that are measured are between two ways on a CPU"
    )
    assert "eight rows or columns, is taken from published figures" in said


@pytest.mark.parametrize(
    ("kind", "said"),
    [("mps", "mps: it has no float64, matrices go to the CPU"), (None, "none")],
)
def test_info_names_the_accelerator(kind, said, monkeypatch, capsys):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: kind is not None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(kind))
    assert main(["info"]) == 0
    assert f"accelerators     {said}\n" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["bench", "compare", "report", "train", "verify"])
def test_without_the_lab_its_commands_say_how_to_get_it(command, monkeypatch, capsys):
    monkeypatch.setattr("spectralgrad.io.plugins._points", lambda group: [])
    with pytest.raises(SystemExit) as stopped:
        main([command, "--quick"])
    assert stopped.value.code == 2
    assert "part of spectralgrad-lab, which is not installed" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "(needs the lab)" in " ".join(capsys.readouterr().out.split())


def test_other_packages_may_add_commands(monkeypatch, capsys):
    def add_arguments(parser):
        parser.add_argument("--times", type=int, default=1)
        parser.set_defaults(run=lambda options: print("hello " * options.times))

    monkeypatch.setattr("spectralgrad.io.plugins.names", lambda group: ["greet", "broken"])
    monkeypatch.setattr("spectralgrad.io.plugins.load", lambda group, name: {"greet": add_arguments}.get(name))
    assert main(["greet", "--times", "2"]) == 0
    assert capsys.readouterr().out.split() == ["hello", "hello"]
    with pytest.raises(SystemExit):
        main(["broken"])
    assert "cannot import the package that provides the command" in capsys.readouterr().err
