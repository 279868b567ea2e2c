"""The kernel is there, built from the present sources, and compiled anew only where the sources have changed."""

import os

import pytest

from spectralgrad import native
from spectralgrad.native import build, library

compiles = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")
FILES = {
    "shared.hpp": "inline int shared() { return 1; }\n",
    "kernel.cpp": '#include "shared.hpp"\nnamespace SG_NS { int kernel() { return shared(); } }\n',
    "complex.cpp": "namespace SG_NS { int complex() { return 2; } }\n",
    "features.cpp": "namespace SG_NS { int features() { return 3; } }\n",
    "dispatch.cpp": 'extern "C" const char* sg_version() { return SG_VERSION; }\n',
}


@compiles
@pytest.mark.skipif(library.switched_off, reason="switched off by SPECTRALGRAD_NATIVE=0")
def test_where_there_is_a_compiler_there_is_a_kernel():
    """Without one all its tests are skipped, so that nobody would notice that it does not compile."""
    assert native.kernel() is not None, f"the kernel was {native.absence()}. `make kernel` shows what the compiler says"


@compiles
@pytest.mark.skipif(not any(build.SRC.rglob("*.cpp")), reason="not a source tree")
def test_the_kernel_is_built_from_the_present_sources():
    assert build.sources() in build.label_of(build.HERE / "_kernel.so"), "out of date: run `make kernel`"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A small source tree in the place of the kernel's."""
    here = tmp_path / "spectralgrad" / "native"
    (here / "src").mkdir(parents=True)
    for name, text in FILES.items():
        (here / "src" / name).write_text(text)
    monkeypatch.setattr(build, "HERE", here)
    monkeypatch.setattr(build, "SRC", here / "src")
    return here


@pytest.fixture
def compiled(monkeypatch):
    """A list that grows by an entry with every source that is compiled."""
    found, run = [], build._run

    def counted(command):
        if "-c" in command:
            found.append("compiled")
        return run(command)

    monkeypatch.setattr(build, "_run", counted)
    return found


@compiles
@pytest.mark.parametrize(
    ("changed", "text", "count"),
    [
        ("shared.hpp", "inline int shared() { return 4; }\n", len(build.X86)),
        ("features.cpp", "namespace SG_NS { int features() { return 5; } }\n", len(build.X86)),
        ("dispatch.cpp", 'extern "C" const char* sg_version() { return "other"; }\n', 1),
        ("unused.hpp", "inline int unused() { return 6; }\n", 0),
    ],
)
def test_a_change_compiles_what_reads_it_and_nothing_else(tree, compiled, changed, text, count):
    count = count if "SG_X86" in str(build._jobs()) else min(count, 1)
    assert build.main() == 0
    before, everything = build.label_of(tree / "_kernel.so"), len(compiled)
    assert everything == len(build._jobs())
    assert build.main() == 0
    (tree / "src" / changed).write_text(text)
    assert build.main() == 0
    assert len(compiled) - everything == count
    assert build.label_of(tree / "_kernel.so") != before
    (tree / "src" / changed).write_text(FILES[changed]) if changed in FILES else (tree / "src" / changed).unlink()
    assert build.main() == 0
    assert len(compiled) - everything == count  # the object files of before are still there
    assert build.label_of(tree / "_kernel.so") == before


@compiles
def test_flags_and_compilers_have_object_files_of_their_own(tree, compiled, monkeypatch):
    objects, other = tree / "objects", tree / "other-compiler"
    other.write_text(f'#!/bin/sh\nexec {build.compiler()} "$@"\n')
    other.chmod(0o755)
    for expected, change in enumerate(
        [
            lambda: None,
            lambda: monkeypatch.setattr(build, "FLAGS", [*build.FLAGS, "-g0"]),
            lambda: monkeypatch.setenv("CXX", str(other)),
        ],
        start=1,
    ):
        change()
        for _ in range(2):
            build.build(tree / "_kernel.so", objects)
        assert len(compiled) == expected * len(build._jobs())


@compiles
def test_object_files_that_were_not_used_for_long_are_removed(tree, monkeypatch):
    objects = tree / "objects"
    monkeypatch.setattr(build, "KEPT", len(build._jobs()))
    build.build(tree / "_kernel.so", objects)
    (objects / "kernel-old.o").write_text("")
    os.utime(objects / "kernel-old.o", (0, 0))
    build.build(tree / "_kernel.so", objects)
    assert len(list(objects.iterdir())) == len(build._jobs())
    assert not (objects / "kernel-old.o").exists()


@compiles
def test_sources_that_do_not_compile_leave_no_kernel_and_are_an_error(tree, capfd):
    assert build.main() == 0
    (tree / "src" / "kernel.cpp").write_text("int kernel() { return undeclared; }\n")
    for _ in range(2):
        assert build.main() == 1
        assert not (tree / "_kernel.so").exists()
        assert "undeclared" in capfd.readouterr().err


def test_without_a_compiler_an_old_kernel_is_removed_and_nothing_fails(tree, monkeypatch, capsys):
    monkeypatch.setenv("CXX", str(tree / "missing"))
    (tree / "_kernel.so").write_text(f"spectralgrad kernel, sources {build.sources()}, compiler 0")
    assert build.main() == 0
    assert (tree / "_kernel.so").exists()
    (tree / "src" / "kernel.cpp").write_text("")
    assert build.main() == 0
    assert not (tree / "_kernel.so").exists()
    assert "No C++ compiler found" in capsys.readouterr().out
