"""What is said survives the encoding of stdout and stderr, and files are UTF-8 whatever that is."""

import io
import subprocess
import sys

import pytest

from spectralgrad.cli import main
from spectralgrad.io.encoding import any_encoding
from spectralgrad_lab import Config
from spectralgrad_lab.training.loop.progress import Bar, Step
from spectralgrad_lab.training.storage.records import Epoch, Result

from .. import forked
from . import helpers

C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
# One process for all commands: the second is faster than the first.
PROGRAM = """
import sys, numpy
from spectralgrad.cli import main

def run(*arguments):
    try:
        return main(arguments)
    except SystemExit as stop:
        return stop.code

numpy.save("two.npy", numpy.diag([1.0, 4.0]))
open("mine.toml", "w", encoding="utf-8").write("lr = -1 # \\u03bb")
tiny = "--train-size 64 --batch-size 32 --epochs 1 --width 2 --monitor-every 1 --threads 1 --no-tensorboard".split()
commands = ("info", "conformance", "inspect", "bench", "train", "compare", "report", "reproduce")
done = [run("--help"), *(run(command, "--help") for command in commands), run("info"), run("inspect", "two.npy")]
done += [run("conformance", "--sizes", "2"), run("train", "--out", "run", *tiny)]
done += [run("compare", "--methods", "svd,exact", "--seeds", "1", "--jobs", "1", "--note", "\\u03bb \\u2260", *tiny)]
done += [run("report", "comparison"), run("reproduce", "list"), run("reproduce", "neurips/B9")]
wrong = [run("train", "--lr", "-1"), run("train", "--config", "mine.toml")]
wrong += [run("inspect", "\\u03bb.npy"), run("report", "\\u4e2d"), run("reproduce", "\\u03bb")]
print(done, wrong)
"""


def run(folder, *arguments, **environment):
    """Python in a process of its own, with nothing but this said of encodings."""
    known = {
        k: v
        for k, v in helpers.environment().items()
        if k == "PYTHONPATH" or not k.startswith(("PYTHON", "LC_", "LANG"))
    }
    known |= environment
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=known, capture_output=True, timeout=600)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_every_command_survives_any_encoding(encoding, tmp_path):
    found = forked.run("-c", PROGRAM, cwd=tmp_path, encoding=encoding, environment={"PYTHONIOENCODING": encoding})
    said, errors = found.stdout, found.stderr
    assert "Traceback" not in errors
    assert said.splitlines()[-1] == f"{[0] * 17} [2, 2, 1, 1, 1]", errors
    for word in ("1/(lambdai - lambdaj)", "\nmethod ", "k 1.", "done: error", "eps of the spectral layer"):
        assert word in said
    for word in ("expected a number >= 0, got -1.0", "lambda.npy"):
        assert word in errors
    assert "λ ≠" in (tmp_path / "comparison" / "report.html").read_text("utf-8")


def test_the_c_locale_is_enough(tmp_path):
    found = run(tmp_path, "-m", "spectralgrad", "train", "--help", **C_LOCALE)
    assert (found.returncode, found.stderr) == (0, b"")
    assert b"eps of the spectral layer" in found.stdout


def test_other_streams_and_the_users_choice_are_left_alone(monkeypatch):
    chosen = io.TextIOWrapper(io.BytesIO(), "ascii", errors="replace")
    monkeypatch.setattr(sys, "stdout", chosen)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with any_encoding():
        print("κ", flush=True)
    assert chosen.buffer.getvalue() == b"?\n"
    strict = io.TextIOWrapper(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stdout", strict)
    with any_encoding():
        print("κ \udcff", flush=True)
    assert strict.buffer.getvalue() == "κ \\udcff\n".encode()
    assert strict.errors == "strict"


def test_the_bar_survives_an_ascii_terminal(monkeypatch):
    from rich.console import Console

    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    with any_encoding():
        bar = Bar(Console(file=stream, force_terminal=True, width=120))
        bar.start(Result(Config()))
        bar.step(Step(0, 1, 2, 1.0, 50.0, 100.0, 1e3))
        bar.epoch(Epoch(0, 0.1, 1.5, 50.0, 1.2, 40.0, 2.0, 500.0, 20.0, 1e5))
        bar.stop(Result(Config()))
        stream.flush()
    assert b"k 1.0e+05" in stream.buffer.getvalue()


def test_names_outside_the_basic_plane_survive_toml(tmp_path):
    config = Config(data='images/😀/λ "quoted" \\', dataset="cifar10")
    (tmp_path / "config.toml").write_bytes(config.to_toml().encode("utf-8"))
    assert Config.from_toml(tmp_path / "config.toml") == config


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a = " + b"[" * 100_000], ids=["not UTF-8", "deep"])
def test_a_configuration_that_is_no_toml_is_refused_in_one_line(content, tmp_path, capsys):
    (tmp_path / "mine.toml").write_bytes(content)
    with pytest.raises(SystemExit) as stop:
        main(["train", "--config", str(tmp_path / "mine.toml")])
    assert stop.value.code == 2
    assert "mine.toml: not a TOML file" in capsys.readouterr().err
