"""The program ``spectralgrad`` prints help and its version without torch, and is the whole library afterwards."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import spectralgrad as sg
import spectralgrad_cli
from spectralgrad.cli import COMMANDS
from spectralgrad.cli.arguments import LIBRARY
from spectralgrad.diagnostics.fuzzing.operations import OPERATIONS

ROOT = Path(spectralgrad_cli.__file__).parent
PROGRAM = "import sys, spectralgrad_cli; sys.exit(spectralgrad_cli.main())"  # as the script that pip installs
LIGHT = """
import sys
class Heavy:
    def find_spec(self, name, *_):
        assert name.partition(".")[0] not in ("torch", "numpy"), f"{name} is imported"
sys.meta_path.insert(0, Heavy())
"""


def run(code, *arguments, path=()):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, path), str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)


@pytest.fixture
def greeting(tmp_path):
    """A folder with an installed package that adds a command, which uses the library."""
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\n")
    (info / "entry_points.txt").write_text(f"[{COMMANDS}]\ngreet = stranger:add_arguments\n")
    (tmp_path / "stranger.py").write_text(
        "import sys, spectralgrad as sg\n"
        "from spectralgrad import linalg\n"
        "def add_arguments(parser):\n"
        "    parser.set_defaults(run=lambda _: print(*sorted(sg.__all__), sg.nn.SpectralModule.__name__))\n"
    )
    return tmp_path


def test_help_lists_every_command_without_torch(greeting):
    done = run(LIGHT + PROGRAM, "--help", path=[greeting])
    assert (done.returncode, done.stderr) == (0, "")
    assert set(re.findall(r"^    ([a-z]+)", done.stdout, re.MULTILINE)) >= {*LIBRARY, "bench", "train", "greet"}


@pytest.mark.parametrize("command", LIBRARY)
def test_help_of_a_command_needs_no_torch(command):
    done = run(LIGHT + PROGRAM, command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: spectralgrad {command}")


def test_version_and_wrong_usage_need_no_torch():
    done = run(LIGHT + PROGRAM, "--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"spectralgrad {sg.__version__}")
    done = run(LIGHT + PROGRAM, "conformance", "--sizes", "7")
    assert done.returncode == 2
    assert "expected even sizes" in done.stderr


def test_commands_find_the_whole_package(greeting):
    done = run(PROGRAM, "greet", path=[greeting])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [*sorted(sg.__all__), "SpectralModule"]
    done = run(PROGRAM, "inspect", str(greeting / "none.npy"))
    assert done.returncode == 1
    assert done.stderr.startswith("spectralgrad inspect: ")
    assert "none.npy" in done.stderr


def test_a_package_that_was_imported_stays_as_it_is():
    code = "import sys, spectralgrad as sg, spectralgrad_cli; eigh = sg.eigh; assert spectralgrad_cli.main() == 0"
    done = run(f"{code}; assert sys.modules['spectralgrad'].eigh is eigh", "fuzz", "--operation", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == list(OPERATIONS)


def test_the_installed_script_is_this_program():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.scripts]\nspectralgrad = "spectralgrad_cli:main"\n' in text
    assert 'py-modules = ["spectralgrad_cli"]' in text
