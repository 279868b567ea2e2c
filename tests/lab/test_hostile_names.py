"""Nothing that only a file names is imported or called: every reader of every file is fed hostile names."""

import builtins
import copy
import json
import os
import pickle
import runpy
import shutil
import subprocess
import sys
import types

import pytest

from spectralgrad.cli import main
from spectralgrad_lab import Config, Epoch, Result, ResultsFile, train
from spectralgrad_lab import import_by_name as importing
from spectralgrad_lab.comparison import gradient_errors
from spectralgrad_lab.comparison.gradient_errors import GradientErrors
from spectralgrad_lab.comparison.grid import compare, grid, job_for
from spectralgrad_lab.comparison.trained_layer import trained_layer
from spectralgrad_lab.data import DataError, load_for
from spectralgrad_lab.networks import NetworkError
from spectralgrad_lab.papers.outcomes import read_all
from spectralgrad_lab.training.config.run_config import ConfigError
from spectralgrad_lab.transfer.translation import train_translation

from .helpers import forge, tiny
from .test_damaged_results import GRADIENTS, places
from .translation_runs import TINY, pictures

TRAPS = [
    (builtins, "breakpoint"), (builtins, "input"), (builtins, "exec"), (os, "abort"), (os, "system"), (sys, "exit"),
    (subprocess, "check_call"), (runpy, "run_path"), (shutil, "rmtree"),
]  # fmt: skip
NAMES = [f"{module.__name__}:{name}" for module, name in TRAPS] + [
    "on_disk:net", "loaded:net", "loaded:inner.net", "on_disk:net\nimport on_disk", "on_disk:[red]net[/]",
    "<script>on_disk</script>:net", "./on_disk:net", "tests.lab.helpers:steady", ":", "on_disk:", ":net",
]  # fmt: skip
SMALL = Config(train_size=64, test_size=64, batch_size=32, epochs=1, width=4, tensorboard=False, group_size=16)
EPOCH = Epoch(0, 0.05, 2.0, 40.0, 1.5, 30.0, 3.0, 700.0, 20.0, 200.0, 16, "exact")


@pytest.fixture
def sprung(tmp_path, monkeypatch):
    """The calls and imports that must not happen; the current folder has a module that reports its own import."""
    calls: list[str] = []

    def trap(name):
        def sprung(*_, **__):
            calls.append(name)
            raise RuntimeError(f"{name} was called")

        return sprung

    loaded = types.ModuleType("loaded")
    loaded.net, loaded.inner = trap("loaded:net"), types.SimpleNamespace(net=trap("loaded:inner.net"))
    monkeypatch.setitem(sys.modules, "loaded", loaded)
    monkeypatch.setattr(importing, "_given", set())
    real = importing._imported
    monkeypatch.setattr(importing, "_imported", lambda name, *rest: calls.append(name) or real(name, *rest))
    place = tmp_path / "received"
    place.mkdir()
    (place / "on_disk.py").write_text("open('imported', 'w').close()\ndef net(classes=10): return None\n", "utf-8")
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setattr(gradient_errors, "measure", lambda *_: GradientErrors.from_dict(GRADIENTS))
    with monkeypatch.context() as traps:
        for module, name in TRAPS:
            if name not in ("exec", "exit", "rmtree"):  # which Python, argparse and this test need
                traps.setattr(module, name, trap(f"{module.__name__}:{name}"))
        yield calls
    assert calls == []
    assert not (place / "imported").exists()
    assert "on_disk" not in sys.modules


def leaves(value):
    """The places of all texts in a tree; of the many references to tensors only the first."""
    found = list(places(value))
    tensors = [path for path in found if path[-1] == "$tensor"]
    for path in found:
        if path in tensors[1:]:
            continue
        inner = value
        for step in path:
            inner = inner[step]
        if isinstance(inner, str):
            yield path


def with_name(tree, path, name):
    changed = copy.deepcopy(tree)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = name
    return changed


def hostile(tree, *fields):
    """The tree with every name in the fields that are imported, and with two names in every other text."""
    for path in leaves(tree):
        for name in NAMES if path[-1] in fields else ("on_disk:net", "loaded:net"):
            yield with_name(tree, path, name)


def command(*arguments):
    """Run a command; whether it succeeds does not matter here."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as end:
        return end.code


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(SMALL, folder)
    return folder


@pytest.mark.parametrize("field", ["dataset", "network"])
@pytest.mark.parametrize("name", NAMES)
def test_a_results_file_cannot_name_code(field, name, finished, sprung, tmp_path, capsys):
    """``report`` and ``compare`` in a received folder; each row has a checkpoint that fits."""
    out = tmp_path / "comparison"
    row = {**Result(SMALL, "done", [EPOCH]).to_dict()}
    row["config"][field] = name
    out.mkdir()
    (out / "results.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    if name.isprintable():
        shutil.copytree(finished, job_for(SMALL.replaced(**{field: name}), out).folder)
        (read,) = ResultsFile(out / "results.jsonl").read()
        assert trained_layer(job_for(read.config, out).folder, read.config) is None
        assert command("report", out) == 0
        assert command("bench", "renewed", out) == 0  # the folder's own result.json is in order
    else:
        with pytest.warns(UserWarning, match="is damaged"):
            assert command("report", out) == 1
    capsys.readouterr()


def test_every_text_of_a_result_may_be_hostile(finished, sprung, tmp_path, capsys, recwarn):
    record = json.loads((finished / "result.json").read_text("utf-8"))
    for i, row in enumerate(hostile(record, "dataset", "network")):
        out = tmp_path / f"{i}"
        shutil.copytree(finished, out / "runs" / "run")
        (out / "runs" / "run" / "result.json").write_text(json.dumps(row), "utf-8")
        assert command("bench", "renewed", out) in (0, 1)
        assert command("train", "--out", out / "runs" / "run", "--resume") in (0, 1, 2)
        (out / "results.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
        if i % 8 == 0:
            assert command("report", out) in (0, 1)
    capsys.readouterr()


def test_every_text_of_a_checkpoint_may_be_hostile(finished, sprung, tmp_path, capsys):
    record = json.loads((finished / "checkpoint.json").read_text("utf-8"))
    (tensors,) = finished.glob("*.safetensors")
    for row in hostile(record, "dataset", "network"):
        out = tmp_path / "run"
        out.mkdir(exist_ok=True)
        shutil.copy(tensors, out)
        forge(out, row)
        assert command("train", "--out", out, "--resume", "--init", out) in (1, 2)
        shutil.rmtree(out)
    capsys.readouterr()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("field", ["dataset", "network"])
def test_a_configuration_cannot_name_code(field, name, finished, sprung, tmp_path, capsys):
    """A resumed run says what to pass; so do --config and a comparison."""
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    lines = (out / "config.toml").read_text("utf-8").splitlines()
    lines = [f"{field} = {json.dumps(name)}" if line.startswith(f"{field} =") else line for line in lines]
    (out / "config.toml").write_text("\n".join(lines), "utf-8")
    for arguments in (["--resume", "--out", out], ["--config", out / "config.toml"]):
        assert command("train", *arguments) == 2
        said = capsys.readouterr().err
        assert "is named only by a file" in said or not name.isprintable()
    assert f"pass --{field} " in said or not name.isprintable()
    assert command("compare", "--config", out / "config.toml", "--out", tmp_path / "comparison") == 2
    capsys.readouterr()


def test_the_other_files_of_a_comparison_cannot_name_code(sprung, tmp_path, capsys, recwarn):
    ResultsFile(tmp_path / "results.jsonl").append(Result(SMALL, "done", [EPOCH]))
    machine = {"cpu": "x", "cores": 2, "instruction set": "x", "date": "x", "kernel": "x"}
    session = {"commands": ["x"], "command": "x", "running": "x", "note": "x", "machine": machine}
    for file, content in {"session.json": session, "gradients.json": GRADIENTS}.items():
        for changed in hostile(content):
            (tmp_path / file).write_text(json.dumps(changed), "utf-8")
            assert command("report", tmp_path) == 0
    capsys.readouterr()


def test_the_files_of_a_translation_cannot_name_code(sprung, tmp_path, capsys):
    config = TINY.replaced(**pictures(tmp_path), steps=1)
    whole, out = tmp_path / "whole", tmp_path / "run"
    train_translation(config, whole)
    files = {name: json.loads((whole / name).read_text("utf-8")) for name in ("result.json", "checkpoint.json")}
    for file, content in files.items():
        for changed in hostile(content):
            shutil.copytree(whole, out)
            (out / file).write_text(json.dumps(changed), "utf-8")
            if file == "checkpoint.json":
                forge(out, changed)
            assert command("transfer", "train", "--out", out, "--resume") in (0, 1, 2)
            shutil.rmtree(out)
    lines = (whole / "config.toml").read_text("utf-8").splitlines()
    shutil.copytree(whole, out)
    for i, line in enumerate(lines):
        if line.endswith('"'):
            changed = [*lines[:i], f'{line.partition(" ")[0]} = "loaded:net"', *lines[i + 1 :]]
            (out / "config.toml").write_text("\n".join(changed), "utf-8")
            assert command("transfer", "train", "--out", out, "--resume") in (0, 1, 2)
            picture = tmp_path / "a" / "0.png"
            assert command("transfer", "apply", out, picture, "--style", picture, "-o", out / "x.png") in (0, 1)
    capsys.readouterr()


def test_the_files_of_bench_and_reproduce_cannot_name_code(sprung, tmp_path, capsys):
    rows = [{"contest": "on_disk:net", "batch": 1, "size": 2, "dtype": "loaded:net", "entries": []}]
    content = {"machine": {"cpu": "loaded:net"}, "seconds per contest": 1, "results": rows}
    (tmp_path / "bench.json").write_text(json.dumps(content), "utf-8")
    assert command("bench", "--from", tmp_path / "bench.json") == 1
    folder = tmp_path / "reproduction" / "tpami"
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / "R22.json").write_text(json.dumps({"values": {name: name}, "seconds": 1}), "utf-8")
        with pytest.raises(ValueError, match=r"R22|tpami"):
            read_all(tmp_path / "reproduction")
    capsys.readouterr()


# --- what a user names is still found


def test_a_name_given_on_the_command_line_is_used(finished, tmp_path, monkeypatch, capsys):
    """A run of one's own network is resumed with its name, and the message says which flags continue it."""
    monkeypatch.setattr(importing, "_given", set())
    out, flags = tmp_path / "run", ["--network", "tests.lab.helpers:tiny"]
    small = ["--train-size", "64", "--test-size", "64", "--batch-size", "32", "--no-tensorboard", "--epochs"]
    assert command("train", *flags, "--out", out, *small, "1") == 0
    monkeypatch.setattr(importing, "_given", set())
    assert command("train", "--out", out, "--resume", "--epochs", "2") == 2
    assert "pass --network tests.lab.helpers:tiny " in capsys.readouterr().err
    assert command("train", "--out", out, "--resume", "--epochs", "2", *flags) == 0


def test_results_of_this_process_may_name_its_network(tmp_path):
    runs = grid(SMALL.replaced(network=f"{__name__}:with_method"), ("exact",), (None,), (0,))
    compare(runs, tmp_path)
    (read,) = ResultsFile(tmp_path / "results.jsonl").read()
    assert trained_layer(job_for(read.config, tmp_path).folder, read.config) is not None


def with_method(classes, method="exact"):
    net = tiny(classes)
    net[1].method = method
    return net


def test_the_mark_survives_copies_and_replaced_values(sprung, tmp_path):
    (tmp_path / "config.toml").write_text('network = "loaded:net"\ndataset = "loaded:net"\n', "utf-8")
    read = Config.from_toml(tmp_path / "config.toml")
    again = Config(**read.to_dict())
    for config in (read, read.replaced(epochs=9), pickle.loads(pickle.dumps(read)), copy.deepcopy(read), again):
        with pytest.raises(DataError, match=r"pass --dataset loaded:net \(in Python: config.replaced\(dataset="):
            load_for(config)
        with pytest.raises((NetworkError, DataError, ConfigError), match="is named only by a file"):
            train(config.replaced(dataset="fashion"))
    assert read == Config(network="loaded:net", dataset="loaded:net")
    assert read.replaced(network="loaded:net").own_names == {"dataset": "loaded:net", "network": "loaded:net"}
