"""A wheel holds what the tree has now: no kernel or module from an earlier build. Nothing is compiled here.

Users without a kernel are told so in the terminal, by pip and at the first import.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import spectralgrad as sg
from spectralgrad.native import build, missing

ROOT = Path(__file__).resolve().parents[1]
BUILT = f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}/spectralgrad"
KERNEL = f"spectralgrad/native/{build.FILE}"

pytestmark = pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="not a source tree")


@pytest.fixture
def tree(tmp_path):
    """A copy of the source tree in which an earlier version has been built, in build/ and in place."""
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "spectralgrad_cli.py"):
        shutil.copy(ROOT / name, tmp_path)
    ignored = shutil.ignore_patterns("__pycache__", build.FILE)
    shutil.copytree(ROOT / "spectralgrad", tmp_path / "spectralgrad", ignore=ignored)
    for stale in (f"{BUILT}/native/{build.FILE}", f"{BUILT}/forgotten.py", KERNEL):
        (tmp_path / stale).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / stale).write_text("old")
    return tmp_path


def setup(tree, *command, compiler, wish=""):
    """Run setup.py without a terminal; return what it printed on stderr."""
    environment = {
        **os.environ,
        "CXX": str(compiler),
        "SPECTRALGRAD_BUILD": wish,
        "XDG_CACHE_HOME": str(tree / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", *command],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def contents(tree):
    (wheel,) = (tree / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return wheel.name, {name: archive.read(name) for name in archive.namelist()}


def test_without_a_compiler_the_wheel_has_no_kernel_and_says_so(tree):
    said = setup(tree, "bdist_wheel", compiler=tree / "no-compiler")
    name, files = contents(tree)
    assert f"spectralgrad: the native kernel was {missing.NOT_BUILT} (no C++ compiler found)" in said
    assert KERNEL not in files
    assert name.endswith("-py3-none-any.whl")
    assert "spectralgrad/forgotten.py" not in files
    assert {"spectralgrad/__init__.py", "spectralgrad/native/build.py", "spectralgrad/py.typed"} <= set(files)
    assert b"spectralgrad = spectralgrad_cli:main" in files[f"spectralgrad-{sg.__version__}.dist-info/entry_points.txt"]
    assert "spectralgrad_cli.py" in files


def test_a_compiler_that_fails_leaves_no_old_kernel_in_place(tree):
    failing = tree / "failing"
    failing.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    failing.chmod(0o755)
    said = setup(tree, "build_ext", "--inplace", compiler=failing)
    assert "broken" in said
    assert f"spectralgrad: the native kernel was {missing.NOT_BUILT}" in said
    assert "the kernel of an earlier build was removed" in said
    assert not (tree / KERNEL).exists()


def test_with_a_compiler_the_wheel_has_the_new_kernel(tree):
    """The compiler writes a text instead of a program."""
    compiler = tree / "compiler"
    compiler.write_text('#!/bin/sh\nfor last; do :; done\necho new > "$last"\n')  # the output is its last argument
    compiler.chmod(0o755)
    said = setup(tree, "bdist_wheel", compiler=compiler)
    name, files = contents(tree)
    assert "not built" not in said
    assert "spectralgrad: compiling the kernel for " in said
    assert files[KERNEL] == b"new\n"
    assert not name.endswith("-any.whl")


def test_a_wheel_without_kernel_can_be_wanted(tree):
    said = setup(tree, "bdist_wheel", compiler=tree / "no-compiler", wish="none")
    name, files = contents(tree)
    assert "not built" not in said
    assert KERNEL not in files
    assert name.endswith("-py3-none-any.whl")


def in_terminal(*command, cwd, **variables):
    """Run a command whose stdout is piped, as pip does, and return what appears in its terminal."""
    pty = pytest.importorskip("pty", reason="no pseudo-terminals")
    child, terminal = pty.fork()
    if child == 0:
        try:
            os.chdir(cwd)
            os.environ.update(variables)
            if command[1] == "setup.py":
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.execv(command[0], command)
        finally:
            os._exit(1)
    shown = b""
    try:
        while text := os.read(terminal, 1000):
            shown += text
    except OSError:  # Linux: the other side is closed
        pass
    os.close(terminal)
    os.waitpid(child, 0)
    return " ".join(shown.decode().split())


def test_pip_shows_in_the_terminal_that_there_is_no_kernel(tree):
    variables = {"CXX": str(tree / "no-compiler"), "SPECTRALGRAD_BUILD": ""}
    shown = in_terminal(sys.executable, "setup.py", "-q", "build_ext", "--inplace", cwd=tree, **variables)
    assert f"spectralgrad: the native kernel was {missing.NOT_BUILT} (no C++ compiler found)" in shown


def test_the_first_import_in_a_terminal_says_once_that_there_is_no_kernel(tree):
    (tree / KERNEL).unlink()
    code = "from pathlib import Path; from spectralgrad.native import missing; missing.mention(Path('spectralgrad'))"
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"
    variables = {"XDG_CACHE_HOME": str(tree / "cache")}
    shown = [in_terminal(sys.executable, "-c", code, cwd=tree, **variables) for _ in range(2)]
    assert shown == [f"spectralgrad: the native kernel was {missing.NOT_BUILT}.", ""]
    unwritable = in_terminal(sys.executable, "-c", code, cwd=tree, XDG_CACHE_HOME=os.devnull)
    assert unwritable == ""
