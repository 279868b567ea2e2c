"""Builds the kernel: the same source compiled once per instruction set, plus a dispatcher, in one shared library.

Run by ``pip install`` through setup.py, and as a program by ``make kernel``. Requires a C++17 compiler with the vector
extensions of GCC (GCC or Clang); set $CXX to use another than c++. Neither torch nor Python headers are needed.

By default the kernel is compiled for the best instruction set of this machine only. SPECTRALGRAD_BUILD=all compiles it
for all of them, a list such as baseline,avx2 for these; with none there is no kernel.

Object files are kept and used again if the text that the compiler would read (headers included), its flags and the
compiler are the same: see ``cache_folder``. A kernel tells which sources it was built from: see ``label``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
SRC = HERE / "src"
FILE = {"win32": "_kernel.dll", "darwin": "_kernel.dylib"}.get(sys.platform, "_kernel.so")
# Deliberately without -ffast-math. The kernel detects NaN and infinity by x·0 ≠ 0 and turns −0 into +0 by x + 0, which
# -ffast-math would optimise away, and approximate reciprocals ruin the orthogonality of float32 eigenvectors (an error
# of 1032 eps instead of 151 at d = 128, measured on a prototype). The flags below do not change results, except that
# multiplications and additions may be fused. -O2 would compile in half the time, but most functions would take 1.5 to
# 3 times as long, because its loops over registers are not unrolled.
VERSION = "18"  # changes with the meaning of the functions that Python calls, so that no kernel of before is used
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
SOURCES = ("real64", "real32", "complex64", "complex32", "features")  # for each instruction set; the longest come first
X86 = {
    "baseline": ["-O2"],  # for processors of before 2013: compiled in half the time
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma", "-mprefer-vector-width=512"],
}
OTHER: dict[str, list[str]] = {"baseline": []}
# What a compiler that targets this machine defines if it has the instruction set.
_DEFINED = {"avx512": ("AVX512F", "AVX512DQ", "AVX512VL", "AVX512BW", "FMA"), "avx2": ("AVX2", "FMA")}
KEPT = 100  # object files in the cache; a kernel for all instruction sets has sixteen
SECONDS = 40  # that one processor takes to compile the kernel for one instruction set; for a message

Sets = Mapping[str, list[str]]  # instruction sets and the flags of each


def compiler() -> list[str] | None:
    """Return the command of the C++ compiler, or None if there is none."""
    command = shlex.split(os.environ.get("CXX") or "c++")
    found = shutil.which(command[0])
    return [found, *command[1:]] if found else None


def instruction_sets(cxx: Sequence[str]) -> Sets:
    """Return the instruction sets to compile for, as SPECTRALGRAD_BUILD says; an empty result: no kernel is wanted."""
    wish, every = os.environ.get("SPECTRALGRAD_BUILD", ""), X86 if platform.machine() in ("x86_64", "AMD64") else OTHER
    if wish in ("", "native"):
        wish = _own(tuple(cxx)) if every is X86 else "all"
    names = {"all": list(every), "none": []}.get(wish, wish.split(","))
    if not set(names) <= set(every):
        raise ValueError(f"SPECTRALGRAD_BUILD={wish}: expected native, all, none or a list of {', '.join(every)}")
    return {name: flags for name, flags in every.items() if name in names}


@cache
def _own(cxx: tuple[str, ...]) -> str:
    """The best instruction set of this machine, according to the compiler."""
    with contextlib.suppress(subprocess.CalledProcessError):
        defined = _run([*cxx, "-march=native", "-dM", "-E", "-x", "c++", os.devnull]).split()
        for name, macros in _DEFINED.items():
            if {f"__{macro}__" for macro in macros} <= set(defined):
                return name
    return "baseline"


def cache_folder() -> Path:
    """Return the folder of kept object files: the user's, which all checkouts share, otherwise one in this checkout.

    The user's folder is used only if it belongs to the user and nobody else may write to it.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "spectralgrad", "kernel")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
        owned = not hasattr(os, "getuid") or (state.st_uid == os.getuid() and not state.st_mode & 0o022)
    except (OSError, RuntimeError):  # no home, or one that cannot be written to
        owned = False
    return folder if owned and os.access(folder, os.W_OK) else HERE.parents[1] / "build" / "kernel"


def build(
    target: Path,
    objects: Path,
    cxx: Sequence[str],
    sets: Sets,
    extra: tuple[str, ...] = (),
    say: Callable[[str], None] = print,
) -> Path:
    """Compile the kernel into the shared library ``target``.

    Args:
        target: the file to write.
        objects: the folder of kept object files.
        cxx: the command of the compiler.
        sets: the instruction sets, and the flags of each.
        extra: flags for all files and for the linker.
        say: called with a sentence if something has to be compiled.
    """
    objects.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    told = label(cxx, sets, extra)  # before the sources are read: if they change now, the kernel counts as out of date
    announce = cache(lambda: say(_expectation(cxx, sets)))  # once
    with tempfile.TemporaryDirectory(dir=objects) as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        compile_one = lambda job: _compiled(cxx, [*FLAGS, *job[1], *extra], job[0], Path(folder), announce)  # noqa: E731
        parts = list(pool.map(compile_one, jobs(sets)))
        text, new = Path(folder, "label.cpp"), target.with_name(f"{target.name}.new")
        text.write_text(f'extern "C" const char sg_label[] = "{told}";\n', encoding="utf-8")
        _run([*cxx, "-shared", "-fPIC", "-pthread", *extra, *map(str, [*parts, text]), "-o", str(new)])
    os.replace(new, target)  # a process that uses the kernel of before keeps it
    _forget_old(objects)
    return target


def build_for_this_machine(target: Path, say: Callable[[str], None] = print) -> None:
    """Build the kernel as the environment asks for it; nothing if SPECTRALGRAD_BUILD=none."""
    if os.environ.get("SPECTRALGRAD_BUILD") == "none":
        return
    cxx = compiler()
    if cxx is None:
        raise FileNotFoundError("no C++ compiler found")
    build(target, cache_folder(), cxx, instruction_sets(cxx), say=say)


def jobs(sets: Sets) -> list[tuple[Path, list[str]]]:
    """Return the files to compile, and the flags of each besides ``FLAGS``."""
    parts = [(SRC / f"{part}.cpp", [*flags, f"-DSG_NS={name}"]) for part in SOURCES for name, flags in sets.items()]
    return [*parts, (SRC / "dispatch.cpp", [f"-DSG_{name.upper()}" for name in sets])]


def _compiled(cxx: Sequence[str], flags: list[str], source: Path, folder: Path, announce: Callable[[], None]) -> Path:
    """Return the object file of a source: a kept one, or one that is compiled now.

    What is compiled is the preprocessed text whose hash names the file, so a source or header that changes meanwhile
    cannot be kept under the wrong name. Lines that tell where the text is from do not count: another checkout has the
    same text in other files.
    """
    handle, text = tempfile.mkstemp(suffix=".ii", dir=folder)
    os.close(handle)
    _run([*cxx, *flags, "-E", str(source), "-o", text])
    lines = (line for line in Path(text).read_bytes().splitlines() if not re.match(rb'# \d+ "', line))
    key = hashlib.sha256("\0".join([_identity(tuple(cxx)), *flags]).encode() + b"\n".join(lines)).hexdigest()
    kept = folder.parent / f"{source.stem}-{key[:32]}.o"
    if kept.exists():
        os.utime(kept)  # recently used
    else:
        announce()
        ccache = shutil.which("ccache")
        _run([*([ccache] if ccache else []), *cxx, *flags, "-c", text, "-o", f"{text}.o"])
        os.replace(f"{text}.o", kept)  # at once, so that an interrupted compilation leaves nothing
    return kept


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout


def _expectation(cxx: Sequence[str], sets: Sets) -> str:
    """What happens now, and how long it takes."""
    processors = min(os.cpu_count() or 1, len(jobs(sets)))
    seconds = max(10, round(SECONDS * len(sets) / processors / 10) * 10)
    kernel = f"compiling the kernel for {', '.join(sets)} with {Path(cxx[0]).name}"
    return f"spectralgrad: {kernel}; this takes about {seconds} seconds on {processors} free processors."


def _forget_old(objects: Path) -> None:
    """Remove all object files but those that were used last."""
    for old in sorted(objects.glob("*.o"), key=lambda file: -file.stat().st_mtime)[KEPT:]:
        old.unlink(missing_ok=True)


@cache
def _identity(cxx: tuple[str, ...]) -> str:
    """The compiler's command and version, and its file, which an update replaces."""
    file = Path(cxx[0]).resolve()
    return f"{file} {cxx[1:]} {file.stat().st_size} {file.stat().st_mtime_ns} {_run([*cxx, '--version'])}"


def sources(extra: tuple[str, ...] = ()) -> str:
    """Return a hash of the kernel's sources and flags."""
    found = hashlib.sha256(repr((FLAGS, SOURCES, X86, extra)).encode())
    for file in sorted(file for file in SRC.rglob("*") if file.suffix in (".cpp", ".hpp", ".def")):
        found.update(f"\0{file.relative_to(SRC)}\0".encode() + file.read_bytes())
    return found.hexdigest()[:32]


def label(cxx: Sequence[str], sets: Sets, extra: tuple[str, ...] = ()) -> str:
    """Return what a kernel that is built now tells about itself: hashes of sources and compiler, and its sets."""
    used = hashlib.sha256(_identity(tuple(cxx)).encode()).hexdigest()[:16]
    return f"spectralgrad kernel, sources {sources(extra)}, compiler {used}, for {' '.join(sets)}."


def label_of(kernel: Path) -> str:
    """Return the label of a kernel, or an empty string if there is no kernel or if it has none."""
    content = kernel.read_bytes() if kernel.exists() else b""
    found = re.search(rb"spectralgrad kernel, sources \w+, compiler \w+, for [\w ]+\.", content)
    return found[0].decode() if found else ""


def sets_of(kernel: Path) -> set[str]:
    """Return the instruction sets for which a kernel was compiled."""
    return set(label_of(kernel).partition(", for ")[2].rstrip(".").split())


def _up_to_date(target: Path, cxx: Sequence[str], sets: Sets) -> bool:
    """True if the kernel is built from the present sources, for the wanted instruction sets or more."""
    built: Sets = {name: [] for name in X86 if name in sets_of(target)}
    return set(sets) <= set(built) and label_of(target) == label(cxx, built)


def main() -> int:
    """Build the kernel of the source tree, unless it is up to date; returns 1 if a compiler exists and fails."""
    target, cxx = HERE / FILE, compiler()
    if cxx is None:
        if sources() in label_of(target):
            return 0
        target.unlink(missing_ok=True)
        print("No C++ compiler found: torch.linalg is used instead of the kernel. Install one, or set CXX to its path.")
        return 0
    try:
        sets = instruction_sets(cxx)
        if sets and _up_to_date(target, cxx, sets):
            return 0
        target.unlink(missing_ok=True)
        if sets:
            build(target, cache_folder(), cxx, sets)
    except (OSError, ValueError, subprocess.CalledProcessError) as problem:
        print(getattr(problem, "stderr", "") or problem, file=sys.stderr)
        print("The kernel could not be compiled.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
