"""The kernel for each platform, compiled by the clang of the PyPI package ziglang, which brings all system libraries.

The C++ library is linked statically, and only the functions of the C interface are visible, so a kernel needs nothing
but the C library of its platform: on Linux glibc 2.17 or later (2014).
"""

from __future__ import annotations

import importlib.util
import os
import platform as _machine
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@cache
def build() -> Any:
    """Return the module spectralgrad/native/build.py, without importing the package, which would need torch."""
    spec = importlib.util.spec_from_file_location("kernel_build", ROOT / "spectralgrad" / "native" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Platform:
    """A platform: what zig and pip call it, and the name of the kernel there, as in ``build.FILE``."""

    target: str
    tag: str
    file: str
    x86: bool = False


PLATFORMS = {
    "linux-x86_64": Platform(
        "x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64.manylinux2014_x86_64", "_kernel.so", x86=True
    ),
    "linux-aarch64": Platform("aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64.manylinux2014_aarch64", "_kernel.so"),
    "macos-arm64": Platform("aarch64-macos.11.0", "macosx_11_0_arm64", "_kernel.dylib"),
    "windows-x86_64": Platform("x86_64-windows-gnu", "win_amd64", "_kernel.dll", x86=True),
}


def this_machine() -> str:
    """Return the name of this machine's platform."""
    system = {"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux")
    machine = {"AMD64": "x86_64", "aarch64": "aarch64", "arm64": "arm64"}.get(_machine.machine(), _machine.machine())
    return f"{system}-{machine}"


def zig() -> str:
    """Return the path of zig."""
    import ziglang

    return str(Path(ziglang.__file__).with_name("zig.exe" if sys.platform == "win32" else "zig"))


def compile_kernel(platform: Platform, folder: Path) -> Path:
    """Compile the kernel for a platform; zig itself keeps object files of the same sources, in its cache."""
    own = build()
    folder.mkdir(parents=True, exist_ok=True)
    cxx, sets = [zig(), "c++", "-target", platform.target], own.X86 if platform.x86 else own.OTHER
    jobs = [
        (source, flags, folder / f"{number}-{source.stem}.o") for number, (source, flags) in enumerate(own.jobs(sets))
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, _, _ in pool.map(lambda job: _compile(cxx, own.FLAGS, *job), jobs):
            print(f"{platform.target}: {source.name}", flush=True)
    text, target = folder / "label.cpp", folder / platform.file
    text.write_text(f'extern "C" const char sg_label[] = "{own.label(cxx[:2], sets)}";\n', encoding="utf-8")
    _run(
        [
            *cxx,
            "-shared",
            "-s",
            *_only_the_interface(platform, folder),
            *map(str, [*(o for *_, o in jobs), text]),
            "-o",
            str(target),
        ]
    )
    return target


def _compile(
    cxx: list[str], flags: list[str], source: Path, own: list[str], target: Path
) -> tuple[Path, list[str], Path]:
    _run([*cxx, *flags, *own, "-c", str(source), "-o", str(target)])
    return source, own, target


def _only_the_interface(platform: Platform, folder: Path) -> list[str]:
    """Flags that hide what the C++ library exports; on Windows nothing is exported that the source does not name.

    On macOS the allocation functions of C++ remain visible, because zig's linker has no list of exported symbols.
    """
    if "macos" in platform.target:
        return [f"-Wl,-install_name,@rpath/{platform.file}", "-Wl,-dead_strip"]
    if "linux" not in platform.target:
        return []
    script = folder / "exports.map"
    script.write_text("{ global: sg_*; local: *; };\n", encoding="utf-8")
    return [f"-Wl,--version-script={script}"]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} failed:\n{done.stderr[-3000:]}")
