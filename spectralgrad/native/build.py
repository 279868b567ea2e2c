"""Builds the kernel: the same source compiled once per instruction set, plus a dispatcher, in one shared library.

Run by ``pip install`` through setup.py, and as a program by ``make kernel``. Requires a C++17 compiler with the vector
extensions of GCC (GCC or Clang); set $CXX to use another than c++. Neither torch nor Python headers are needed.

Object files are kept and used again if the text that the compiler would read (headers included), its flags and the
compiler are the same. A kernel tells which sources it was built from: see ``label``.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
SRC = HERE / "src"
# Deliberately without -ffast-math. The kernel detects NaN and infinity by x·0 ≠ 0 and turns −0 into +0 by x + 0, which
# -ffast-math would optimise away, and approximate reciprocals ruin the orthogonality of float32 eigenvectors (an error
# of 1032 eps instead of 151 at d = 128, measured on a prototype). The flags below do not change results, except that
# multiplications and additions may be fused.
VERSION = "16"  # changes with the meaning of the functions that Python calls, so that no kernel of before is used
FLAGS = [
    f'-DSG_VERSION="{VERSION}"',
    "-O3",
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
    "-Wno-ignored-attributes",
]
SOURCES = ("kernel", "complex", "features")  # compiled for each instruction set
X86 = {
    "baseline": ["-O2"],  # for processors of before 2013: compiled in half the time
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma", "-mprefer-vector-width=512"],
}
KEPT = 60  # object files in the cache; a kernel has ten


def compiler() -> str | None:
    """Return the path of the C++ compiler, or None if there is none."""
    return shutil.which(os.environ.get("CXX", "c++"))


def build(target: Path, objects: Path, extra: tuple[str, ...] = ()) -> Path:
    """Compile the kernel into the shared library ``target``; ``objects`` is the folder of kept object files."""
    cxx = compiler()
    if cxx is None:
        raise FileNotFoundError("no C++ compiler found; install one or set CXX to its path")
    objects.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    told = label(cxx, extra)  # before the sources are read: if they change meanwhile, the kernel counts as out of date
    with tempfile.TemporaryDirectory(dir=objects) as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        compile_one = lambda job: _compiled([cxx, *FLAGS, *job[1], *extra], job[0], objects, Path(folder))  # noqa: E731
        parts = list(pool.map(compile_one, _jobs()))
        text, new = Path(folder, "label.cpp"), target.with_name(f"{target.name}.new")
        text.write_text(f'extern "C" const char sg_label[] = "{told}";\n', encoding="utf-8")
        _run([cxx, "-shared", "-fPIC", "-pthread", *extra, *map(str, [*parts, text]), "-o", str(new)])
    os.replace(new, target)  # a process that uses the kernel of before keeps it
    _forget_old(objects)
    return target


def _jobs() -> list[tuple[Path, list[str]]]:
    """The files to compile, and the flags of each besides ``FLAGS``."""
    x86 = platform.machine() in ("x86_64", "AMD64")
    sets = X86 if x86 else {"baseline": []}
    jobs = [(SRC / f"{source}.cpp", [*flags, f"-DSG_NS={name}"]) for source in SOURCES for name, flags in sets.items()]
    return [*jobs, (SRC / "dispatch.cpp", ["-DSG_X86"] if x86 else [])]


def _compiled(command: list[str], source: Path, objects: Path, folder: Path) -> Path:
    """Return the object file of a source: a kept one, or one that is compiled now.

    What is compiled is the preprocessed text whose hash names the file, so a source or header that changes meanwhile
    cannot be kept under the wrong name.
    """
    handle, text = tempfile.mkstemp(suffix=".ii", dir=folder)
    os.close(handle)
    _run([*command, "-E", str(source), "-o", text])
    key = hashlib.sha256("\0".join([*command, _identity(command[0])]).encode() + Path(text).read_bytes()).hexdigest()
    kept = objects / f"{source.stem}-{key[:32]}.o"
    if kept.exists():
        os.utime(kept)  # recently used
    else:
        _run([*command, "-c", text, "-o", f"{text}.o"])
        os.replace(f"{text}.o", kept)  # at once, so that an interrupted compilation leaves nothing
    return kept


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout


def _forget_old(objects: Path) -> None:
    """Remove all object files but those that were used last."""
    for old in sorted(objects.glob("*.o"), key=lambda file: -file.stat().st_mtime)[KEPT:]:
        old.unlink(missing_ok=True)


@cache
def _identity(cxx: str) -> str:
    """The compiler's version, and its file, which an update replaces."""
    file = Path(cxx).resolve()
    return f"{file} {file.stat().st_size} {file.stat().st_mtime_ns} {_run([cxx, '--version'])}"


def sources(extra: tuple[str, ...] = ()) -> str:
    """Return a hash of the kernel's sources and flags."""
    found = hashlib.sha256(repr((FLAGS, SOURCES, X86, extra)).encode())
    for file in sorted(file for file in SRC.rglob("*") if file.suffix in (".cpp", ".hpp", ".def")):
        found.update(f"\0{file.relative_to(SRC)}\0".encode() + file.read_bytes())
    return found.hexdigest()[:32]


def label(cxx: str, extra: tuple[str, ...] = ()) -> str:
    """Return what a kernel that is built now tells about itself: hashes of its sources and of the compiler."""
    used = hashlib.sha256(_identity(cxx).encode()).hexdigest()[:16]
    return f"spectralgrad kernel, sources {sources(extra)}, compiler {used}"


def label_of(kernel: Path) -> str:
    """Return the label of a kernel, or an empty string if there is no kernel or if it has none."""
    content = kernel.read_bytes() if kernel.exists() else b""
    found = re.search(rb"spectralgrad kernel, sources \w+, compiler \w+", content)
    return found[0].decode() if found else ""


def main() -> int:
    """Build the kernel of the source tree, unless it is up to date; returns 1 if a compiler exists and fails."""
    target, cxx = HERE / "_kernel.so", compiler()
    if cxx is None:
        if sources() in label_of(target):
            return 0
        target.unlink(missing_ok=True)
        print("No C++ compiler found: torch.linalg is used instead of the kernel. Install one, or set CXX to its path.")
        return 0
    if label_of(target) == label(cxx):
        return 0
    print("Building the kernel.", flush=True)
    target.unlink(missing_ok=True)
    try:
        build(target, HERE.parents[1] / "build" / "kernel")
    except (OSError, subprocess.CalledProcessError) as problem:
        print(getattr(problem, "stderr", "") or problem, file=sys.stderr)
        print("The kernel could not be compiled.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
