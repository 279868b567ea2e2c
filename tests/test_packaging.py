"""A wheel holds what the tree has now: no kernel or module from an earlier build. Nothing is compiled here."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import spectralgrad as sg

ROOT = Path(__file__).resolve().parents[1]
BUILT = f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}/spectralgrad"
KERNEL = "spectralgrad/native/_kernel.so"

pytestmark = pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="not a source tree")


@pytest.fixture
def tree(tmp_path):
    """A copy of the source tree in which an earlier version has been built, in build/ and in place."""
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "spectralgrad_cli.py"):
        shutil.copy(ROOT / name, tmp_path)
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.dylib")
    shutil.copytree(ROOT / "spectralgrad", tmp_path / "spectralgrad", ignore=ignored)
    for stale in (f"{BUILT}/native/_kernel.so", f"{BUILT}/forgotten.py", KERNEL):
        (tmp_path / stale).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / stale).write_text("old")
    return tmp_path


def setup(tree, *command, compiler):
    """Run setup.py; return what it printed on stderr."""
    environment = {**os.environ, "CXX": str(compiler)}
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", *command],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
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
    assert "spectralgrad: native kernel not built, torch.linalg will be used: no C++ compiler found" in said
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
    assert "native kernel not built, torch.linalg will be used: broken" in said
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
    assert files[KERNEL] == b"new\n"
    assert not name.endswith("-any.whl")
