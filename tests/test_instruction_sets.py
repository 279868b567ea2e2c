"""The kernel's results in each instruction set by LAPACK's criterion, in a program without Python or torch."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from spectralgrad.native import build

pytestmark = pytest.mark.native
HERE = Path(__file__).parent / "native"
LIBRARY = build.HERE / build.FILE
FLAGS = ["-O2", "-std=c++17", "-fcx-limited-range", HERE / "accuracy.cpp"]  # products without the test for NaN


def judged(command, **variables):
    """Run the program, which fails if a ratio is 30 or more, and return what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, **variables})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(":") == 34, done.stdout  # seventeen entries in two types
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    cxx = build.compiler()
    if cxx is None or not LIBRARY.exists():
        pytest.skip("no C++ compiler" if cxx is None else "the native kernel was not built")
    program = tmp_path_factory.mktemp("accuracy") / "accuracy"
    subprocess.run([*cxx, *FLAGS, LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}", "-pthread", "-o", program], check=True)
    return program


@pytest.mark.parametrize("isa", build.X86)
def test_accuracy_in_the_instruction_sets_of_this_machine(isa, program):
    if not judged(program, SPECTRALGRAD_ISA=isa).startswith(f"{isa} "):
        pytest.skip(f"this processor or the kernel has no {isa}")


@pytest.mark.skipif("SPECTRALGRAD_TEST_NEON" not in os.environ, reason="compiling takes a minute: make test-neon")
def test_accuracy_of_the_code_for_arm_under_an_emulator(tmp_path):
    compiler, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("needs aarch64-linux-gnu-g++ and qemu-aarch64")
    sources = [build.SRC / f"{name}.cpp" for name in (*build.SOURCES, "dispatch")]
    objects = [tmp_path / f"{source.stem}.o" for source in sources]
    running = [
        subprocess.Popen([compiler, *build.FLAGS, "-DSG_NS=baseline", "-DSG_BASELINE", "-c", source, "-o", target])
        for source, target in zip(sources, objects, strict=True)
    ]
    assert [process.wait() for process in running] == [0] * len(running)
    program = tmp_path / "accuracy"
    subprocess.run([compiler, *FLAGS, *objects, "-static", "-pthread", "-o", program], check=True)
    assert judged([emulator, program]).startswith("baseline ")
