"""How ``rescue`` and ``doctor`` start a program: what begins with it, what its end brings, and wrong usage."""

import argparse
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import spectralgrad as sg
from spectralgrad.cli import main
from spectralgrad.io import programs

from .programs import NOTHING, replacement, run, write


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- what is added: with modules in place of torch and of ours, which take seconds to import

OURS = """\
def begin(name):
    import torch
    print("begin", name, torch.ready, flush=True)
    return lambda: print("finish", name, flush=True)
"""


def added(folder, program, idle="idle"):
    """What a program prints that is started together with OURS; torch is a module that sets ``ready``."""
    write(folder / "elsewhere" / "ours.py", OURS)
    write(folder / "torch.py", "import os\nready = os.environ.get('READY', 'unset')\n")
    write(folder / "program.py", program)
    options = argparse.Namespace(module=None, program=["program.py"])
    command, environment = replacement(programs.start, options, "ours:begin", {"name": "x"}, idle=idle)
    plan = json.loads(environment["SPECTRALGRAD_START"])
    assert Path(plan["root"]) == Path(sg.__file__).parent.parent
    plan["root"] = str(folder / "elsewhere")  # found although it is not on the path of the program
    return run(command, {**environment, "SPECTRALGRAD_START": json.dumps(plan)})


def test_ours_begins_when_torch_is_imported_and_finishes_last(folder):
    program = """\
import atexit, importlib.util, os, sys, threading
atexit.register(print, "at exit", flush=True)
before = sys.path[:]
assert importlib.util.find_spec("torch").loader is not None
os.environ["READY"] = "set"
print("program", flush=True)
import torch, torch
print(sys.path == before, "exec_module" in vars(torch.__loader__), flush=True)
if os.fork() == 0:
    sys.exit()
os.wait()
def late():
    threading.main_thread().join()
    print("late", flush=True)
threading.Thread(target=late).start()
"""
    status, out, err = added(folder, program)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines == ["program", "begin x set", "True False", "at exit", "late", "at exit", "finish x"]


def test_ours_waits_until_an_import_of_torch_succeeds(folder):
    program = """\
import sys
sys.path.insert(0, "broken")
try:
    import torch
except ZeroDivisionError:
    print("failed", flush=True)
del sys.path[0]
import torch
"""
    write(folder / "broken" / "torch.py", "1 / 0")
    assert added(folder, program) == (0, "failed\nbegin x unset\nfinish x\n", "")


def test_ours_may_begin_without_torch(folder):
    assert added(folder, "print('end')", idle="nothing") == (0, "end\n", "nothing\n")
    assert added(folder, "print('end')", idle="") == (0, "end\n", "")
    assert added(folder, "print('end', flush=True)", idle=None) == (0, "end\nbegin x unset\nfinish x\n", "")


def test_ours_begins_at_once_if_torch_is_there_before_the_program(folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(folder / "customized"))
    write(folder / "customized" / "sitecustomize.py", "import torch")
    write(folder / "customized" / "torch.py", "ready = 'early'")
    assert added(folder, "print('program', flush=True)")[1] == "begin x early\nprogram\nfinish x\n"


# --- with torch

PROGRAM = """\
import os, threading, atexit
os.environ["OMP_NUM_THREADS"] = "1"
import torch
def finite(where):
    A = torch.eye(2, requires_grad=True)
    torch.linalg.eigh(A).eigenvectors[0, 0].backward()
    print(where, bool(A.grad.isfinite().all()), flush=True)
def late():
    threading.main_thread().join()
    finite("late")
finite("main")
atexit.register(finite, "at exit")
threading.Thread(target=late).start()
if os.fork() == 0:
    finite("forked")
    os._exit(0)
os.wait()
os.chdir("..")
print(torch.get_num_threads())
raise ValueError("bad")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_the_replacement_stays_on_until_the_process_ends(folder):
    write(folder / "someones.py", PROGRAM)
    quiet = ["-W", "ignore::DeprecationWarning"]  # Python 3.12 and later warn of a fork beside torch's threads
    status, out, err = run([sys.executable, "-u", *quiet, "-m", "spectralgrad", "rescue", "someones.py"])
    assert (status, out) == (1, "main True\nforked True\n1\nlate True\nat exit True\n")
    assert err.splitlines()[::3] == ["Traceback (most recent call last):", "ValueError: bad"]


def test_the_doctor_reports_at_the_very_end(folder):
    write(folder / "someones.py", PROGRAM)
    command = replacement(main, ["doctor", "--json", "r.json", "someones.py"])
    status, out, err = run(*command)
    assert (status, out) == (1, "main False\nforked False\n1\nlate False\nat exit False\n")
    assert "ValueError: bad\n\n2 spectral calls at 1 place, 2 gradients: 1 place with a problem." in err
    assert "someones.py:6 in finite" in err
    assert json.loads((folder / "r.json").read_text("utf-8"))["findings"][0]["line"] == 6


# --- the commands themselves


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python -m spectralgrad", ""),
        ("python bin/spectralgrad", ""),
        ("python -u -W error -Xdev -m spectralgrad", "-u -W error -X dev"),
        ("python -uOm spectralgrad", "-u -O"),
        ("python -mspectralgrad", ""),
        ("python --check-hash-based-pycs always -s bin/spectralgrad", "--check-hash-based-pycs always -s"),
        ("python -B -c code", "-B"),
    ],
)
def test_the_options_of_python_are_kept(command, expected, monkeypatch):
    rest = ["rescue", "-m", "x", "-W", "error", "train.py"]
    monkeypatch.setattr(sys, "orig_argv", [*command.split(), *rest])
    monkeypatch.setattr(sys, "argv", ["", *rest])
    assert programs._options_of_python() == expected.split()


@pytest.mark.parametrize("command", ["rescue", "doctor"])
def test_wrong_usage_is_one_line(command, folder, monkeypatch, capsys):
    assert main([command, "nothere.py"]) == 1
    assert capsys.readouterr().err == f"spectralgrad {command}: nothere.py: No such file or directory\n"
    with pytest.raises(SystemExit, match="2"):
        main([command])
    assert "expected a program" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main([command, "--epochs", "3", "train.py"])
    printed = capsys.readouterr().err
    assert "options of the program follow FILE or MODULE" in printed
    assert "[-m MODULE | FILE] [ARGUMENT ...]" in printed
    write(folder / "a.py", "")
    flags = {name: getattr(sys.flags, name) for name in dir(sys.flags) if name[0] != "_"}
    for name in ("ignore_environment", "no_site"):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "flags", SimpleNamespace(**{**flags, name: 1}))
            assert main([command, "a.py"]) == 1
        assert "expected Python without the options -E, -I and -S" in capsys.readouterr().err


def test_arguments_are_checked_before_the_program_starts(folder, capsys):
    write(folder / "a.py", "")
    assert main(["rescue", "--method", "nope", "a.py"]) == 1
    assert "nope" in capsys.readouterr().err
    assert main(["doctor", "--json", str(folder / "no" / "r.json"), "a.py"]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_a_program_without_torch_has_a_report(folder):
    write(folder / "a.py", "")
    assert run(*replacement(main, ["doctor", "a.py"])) == (0, "", NOTHING)
    assert run(*replacement(main, ["doctor", "--json", "r.json", "a.py"]))[0] == 0
    assert json.loads((folder / "r.json").read_text("utf-8"))["findings"] == []
