"""Builds the kernel: the same source compiled once per instruction set, plus a dispatcher, in one shared library.

Run by ``pip install`` through setup.py. Requires a C++17 compiler with GCC's vector extensions (GCC or Clang); set $CXX
to use a compiler other than c++. Neither torch nor Python headers are needed.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
# Deliberately without -ffast-math. The kernel detects NaN and infinity by x·0 ≠ 0 and turns −0 into +0 by x + 0, which
# -ffast-math would optimise away, and approximate reciprocals ruin the orthogonality of float32 eigenvectors (an error
# of 1032 eps instead of 151 at d = 128, measured on a prototype). The flags below do not change results, except that
# multiplications and additions may be fused.
VERSION = "15"  # changes with the meaning of the functions that Python calls, so that no kernel of before is used
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


def compiler() -> str | None:
    """Return the path of the C++ compiler, or None if there is none."""
    return shutil.which(os.environ.get("CXX", "c++"))


def build(target: Path, objects: Path, extra: tuple[str, ...] = ()) -> Path:
    """Compile the kernel into the shared library ``target``, with object files in ``objects``."""
    cxx = compiler()
    if cxx is None:
        raise FileNotFoundError("no C++ compiler found; install one or set CXX to its path")
    x86 = platform.machine() in ("x86_64", "AMD64")
    sets = X86 if x86 else {"baseline": []}
    objects.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    jobs = [
        (f"{source}.cpp", objects / f"{source}-{name}.o", [*flags, f"-DSG_NS={name}"])
        for source in SOURCES
        for name, flags in sets.items()
    ]
    jobs.append(("dispatch.cpp", objects / "dispatch.o", ["-DSG_X86"] if x86 else []))

    def compile_one(job: tuple[str, Path, list[str]]) -> None:
        source, result, flags = job
        command = [cxx, *FLAGS, *flags, *extra, "-c", str(HERE / source), "-o", str(result)]
        subprocess.run(command, check=True, capture_output=True, text=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, jobs))
    link = [cxx, "-shared", "-pthread", *extra, *(str(result) for _, result, _ in jobs), "-o", str(target)]
    subprocess.run(link, check=True, capture_output=True, text=True)
    return target
