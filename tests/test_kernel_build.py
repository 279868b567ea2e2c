"""The kernel is there, built from the present sources, and compiled anew only where the sources have changed."""

import os
import shutil
from pathlib import Path

import pytest

from spectralgrad import native
from spectralgrad.native import build, library

from . import kernel_calls

compiles = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")
NATIVE = native.kernel()
FILES = {
    "shared.hpp": "inline int shared() { return 1; }\n",
    "real64.cpp": '#include "shared.hpp"\nnamespace SG_NS { int real64() { return shared(); } }\n',
    "real32.cpp": "namespace SG_NS { int real32() { return 1; } }\n",
    "complex64.cpp": "namespace SG_NS { int complex64() { return 2; } }\n",
    "complex32.cpp": "namespace SG_NS { int complex32() { return 2; } }\n",
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
    assert build.sources() in build.label_of(build.HERE / build.FILE), "out of date: run `make kernel`"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A small source tree in the place of the kernel's."""
    here = tmp_path / "spectralgrad" / "native"
    (here / "src").mkdir(parents=True)
    for name, text in FILES.items():
        (here / "src" / name).write_text(text)
    monkeypatch.setattr(build, "HERE", here)
    monkeypatch.setattr(build, "SRC", here / "src")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPECTRALGRAD_BUILD", "all")
    return here


def all_jobs():
    return build.jobs(build.instruction_sets(build.compiler()))


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
    count = count if "SG_AVX2" in str(all_jobs()) else min(count, 1)
    assert build.main() == 0
    before, everything = build.label_of(tree / build.FILE), len(compiled)
    assert everything == len(all_jobs())
    assert build.main() == 0
    (tree / "src" / changed).write_text(text)
    assert build.main() == 0
    assert len(compiled) - everything == count
    assert build.label_of(tree / build.FILE) != before
    (tree / "src" / changed).write_text(FILES[changed]) if changed in FILES else (tree / "src" / changed).unlink()
    assert build.main() == 0
    assert len(compiled) - everything == count  # the object files of before are still there
    assert build.label_of(tree / build.FILE) == before


@compiles
def test_another_checkout_compiles_nothing(tree, compiled, monkeypatch):
    assert build.main() == 0
    everything = len(compiled)
    shutil.copytree(tree, tree.parent / "other")
    monkeypatch.setattr(build, "HERE", tree.parent / "other")
    monkeypatch.setattr(build, "SRC", tree.parent / "other" / "src")
    (build.HERE / build.FILE).unlink()
    assert build.main() == 0
    assert len(compiled) == everything
    assert build.label_of(build.HERE / build.FILE) == build.label_of(tree / build.FILE)


@compiles
def test_the_default_is_the_best_instruction_set_and_more_is_up_to_date(tree, compiled, monkeypatch, capsys):
    monkeypatch.delenv("SPECTRALGRAD_BUILD")
    assert build.main() == 0
    (own,) = build.sets_of(tree / build.FILE)
    assert len(compiled) == len(build.SOURCES) + 1
    assert f"compiling the kernel for {own} with c++; this takes about " in capsys.readouterr().out
    if NATIVE is not None and kernel_calls.built() == {*build.X86}:
        assert own == NATIVE.isa  # which the kernel finds out by itself
    for wish in ("all", "native", "baseline"):
        monkeypatch.setenv("SPECTRALGRAD_BUILD", wish)
        assert build.main() == 0
        every = build.sets_of(tree / build.FILE)
        assert every in ({*build.X86}, {*build.OTHER})
    monkeypatch.setenv("SPECTRALGRAD_BUILD", "none")
    assert build.main() == 0
    assert not (tree / build.FILE).exists()
    monkeypatch.setenv("SPECTRALGRAD_BUILD", "avx1024")
    assert build.main() == 1
    assert "expected native, all, none or a list of baseline" in capsys.readouterr().err


@compiles
def test_a_kernel_for_other_processors_is_refused_with_a_reason(tree, monkeypatch):
    """It would crash: nothing of it is called but the function that says so."""
    (tree / "src" / "dispatch.cpp").write_text(
        '#define SHOWN extern "C" __attribute__((visibility("default")))\n'
        "SHOWN const char* sg_version() { return SG_VERSION; }\nSHOWN const char* sg_isa() { return nullptr; }\n"
    )
    build.build(tree / build.FILE, tree / "objects", build.compiler(), build.OTHER)
    with pytest.raises(OSError, match="this processor lacks; reinstall with SPECTRALGRAD_BUILD=all"):
        native.Kernel(tree / build.FILE)


def test_only_a_folder_of_the_user_keeps_object_files(tree, monkeypatch):
    own = Path(os.environ["XDG_CACHE_HOME"], "spectralgrad", "kernel")
    assert build.cache_folder() == own
    assert own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o777)  # anybody could put an object file there
    assert build.cache_folder() == build.HERE.parents[1] / "build" / "kernel"
    own.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: own.stat().st_uid + 1)
    assert build.cache_folder() == build.HERE.parents[1] / "build" / "kernel"
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert build.cache_folder() == build.HERE.parents[1] / "build" / "kernel"


@compiles
def test_flags_and_compilers_have_object_files_of_their_own(tree, compiled, monkeypatch):
    objects, other = tree / "objects", tree / "other-compiler"
    other.write_text(f'#!/bin/sh\nexec {build.compiler()[0]} "$@"\n')
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
            build.build(tree / build.FILE, objects, build.compiler(), build.OTHER)
        assert len(compiled) == expected * len(build.jobs(build.OTHER))


@compiles
def test_object_files_that_were_not_used_for_long_are_removed(tree, monkeypatch):
    objects = tree / "objects"
    monkeypatch.setattr(build, "KEPT", len(build.jobs(build.OTHER)))
    build.build(tree / build.FILE, objects, build.compiler(), build.OTHER)
    (objects / "kernel-old.o").write_text("")
    os.utime(objects / "kernel-old.o", (0, 0))
    build.build(tree / build.FILE, objects, build.compiler(), build.OTHER)
    assert len(list(objects.iterdir())) == len(build.jobs(build.OTHER))
    assert not (objects / "kernel-old.o").exists()


@compiles
def test_sources_that_do_not_compile_leave_no_kernel_and_are_an_error(tree, capfd):
    assert build.main() == 0
    (tree / "src" / "real64.cpp").write_text("int real64() { return undeclared; }\n")
    for _ in range(2):
        assert build.main() == 1
        assert not (tree / build.FILE).exists()
        assert "undeclared" in capfd.readouterr().err


def test_without_a_compiler_an_old_kernel_is_removed_and_nothing_fails(tree, monkeypatch, capsys):
    monkeypatch.setenv("CXX", str(tree / "missing"))
    (tree / build.FILE).write_text(f"spectralgrad kernel, sources {build.sources()}, compiler 0, for all.")
    assert build.main() == 0
    assert (tree / build.FILE).exists()
    (tree / "src" / "real64.cpp").write_text("")
    assert build.main() == 0
    assert not (tree / build.FILE).exists()
    assert "No C++ compiler found" in capsys.readouterr().out
