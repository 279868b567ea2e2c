"""Checks of built wheels: what they hold, what their kernels need and show, and what the kernels compute."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .kernels import PLATFORMS, ROOT, Platform, build, this_machine, zig

LARGEST = 3_000_000  # bytes of a wheel
CONDA = ("linux-64", "linux-aarch64", "osx-arm64", "win-64")
INTERFACE = {"sg_constants", "sg_entries", "sg_isa", "sg_version"}
# Also visible are the data that names the sources, and on macOS what every library has, and C++'s new and delete.
_HARMLESS = re.compile(r"sg_label|mh_dylib_header|dso_handle|Z(n[aw]m|d[al]Pv)\w*")
NEEDED = {
    "linux": ("libc.so.", "libm.so.", "libpthread.so.", "libdl.so.", "ld-linux-"),
    "macos": ("/usr/lib/libSystem.B.dylib",),
    "windows": ("KERNEL32.dll", "api-ms-win-crt-"),
}
_EMULATORS = {
    "linux-aarch64": ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"),  # Debian: qemu-user, libc6-arm64-cross
    "windows-x86_64": ("/usr/lib/wine/wine64",),  # Debian: wine64
}


def tools(files: list[Path]) -> Iterator[str]:
    """Run twine, check-wheel-contents and auditwheel; yield what they object to."""
    wheels = [str(file) for file in files if file.suffix == ".whl"]
    commands = [["twine", "check", "--strict", *map(str, files)], ["check_wheel_contents", *wheels]]
    commands += [["auditwheel", "show", wheel] for wheel in wheels if "manylinux" in wheel]
    for command in commands:
        done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
        wanted = next((tag for tag in command[-1].split("-")[-1].split(".") if tag.startswith("manylinux_")), "")
        if done.returncode or (command[0] == "auditwheel" and wanted not in done.stdout):
            yield f"{' '.join(command[:2])} {Path(command[-1]).name}: {done.stdout}{done.stderr}"


def recipe(root: Path = ROOT) -> Iterator[str]:
    """Render the conda recipe for every platform; yield what rattler-build objects to, and outputs that are missing."""
    from rattler_build import PlatformConfig, RattlerBuildError, RenderConfig, Stage0Recipe, VariantConfig

    variants = {"c_stdlib": ["sysroot"], "cxx_compiler": ["gxx"], "python": ["3.12.*"], "python_min": ["3.10"]}
    for platform in CONDA:
        try:
            written = Stage0Recipe.from_file(str(root / "recipe" / "recipe.yaml"))
            target = PlatformConfig(target_platform=platform, build_platform="linux-64", host_platform=platform)
            made = [v.recipe.package.name for v in written.render(VariantConfig(variants), RenderConfig(target))]
        except RattlerBuildError as error:
            yield f"recipe for {platform}: {error}"
            continue
        if made != ["spectralgrad", "spectralgrad-lab"]:
            yield f"recipe for {platform}: expected two packages, got {made}"


def contents(wheel: Path, platform: Platform | None) -> Iterator[str]:
    """Yield what is wrong with the size or the files of a wheel; ``platform`` is None for one without kernel."""
    if wheel.stat().st_size >= LARGEST:
        yield f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, expected less than {LARGEST / 1e6:.0f}"
    with zipfile.ZipFile(wheel) as archive:
        kernels = [name for name in archive.namelist() if Path(name).stem == "_kernel"]
    expected = [f"spectralgrad/native/{platform.file}"] if platform else []
    if kernels != expected:
        yield f"{wheel.name}: contains {kernels}, expected {expected}"


def library(name: str, kernel: Path) -> Iterator[str]:
    """Yield which symbols a kernel shows besides its interface, and which libraries it needs besides the system's."""
    import lief

    binary: Any = lief.parse(str(kernel))
    system = name.partition("-")[0]
    if system == "linux":
        shown, needed = {x.name for x in binary.exported_symbols}, set(binary.libraries)
        newest = max(tuple(map(int, v.split("_")[1].split("."))) for v in _versions(binary) if v.startswith("GLIBC_"))
        if newest > (2, 17):
            yield f"{name}: needs glibc {newest}"
    elif system == "macos":
        shown = {x.name.lstrip("_") for x in binary.exported_symbols}
        needed = {library.name for library in binary.libraries} - {"@rpath/_kernel.dylib"}
        if tuple(binary.build_version.minos)[:2] > (11, 0) or not binary.has_code_signature:
            yield f"{name}: is not for macOS 11, or is not signed, which processors of Apple require"
    else:
        shown = {entry.name for entry in binary.get_export().entries}
        needed = {entry.name for entry in binary.imports}
    if not shown >= INTERFACE or not all(map(_HARMLESS.fullmatch, shown - INTERFACE)):
        yield f"{name}: exports {sorted(shown)}, expected {sorted(INTERFACE)}"
    if strange := [x for x in needed if not x.startswith(NEEDED[system])]:
        yield f"{name}: needs {strange}"


def _versions(binary: Any) -> set[str]:
    return {version.name for needed in binary.symbols_version_requirement for version in needed.get_auxiliary_symbols()}


def computed(name: str, kernel: Path) -> Iterator[tuple[str, str]]:
    """Run tests/native/accuracy.cpp with a kernel, under an emulator, in each instruction set.

    Yields what the program printed, and what is wrong. Nothing is wrong with a kernel that cannot be run here.
    """
    emulator = () if name == this_machine() else _EMULATORS.get(name, ("an emulator",))
    if emulator and shutil.which(emulator[0]) is None:
        yield f"{name}: not run here, {emulator[0]} is missing", ""
        return
    with tempfile.TemporaryDirectory() as folder:
        program = _program(PLATFORMS[name], shutil.copy(kernel, folder))
        for isa in build().X86 if PLATFORMS[name].x86 else build().OTHER:
            given = {"LD_LIBRARY_PATH": folder, "SPECTRALGRAD_ISA": isa, "WINEDEBUG": "-all"}
            if "qemu-aarch64" in emulator:  # the library's folder is the emulated program's, not the emulator's
                given = {"QEMU_SET_ENV": f"LD_LIBRARY_PATH={folder}"}
            command = [*emulator, str(program)]
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **given}, cwd=folder)
            ratios = re.findall(r"^(\w+) .*: ([\d.]+)$", done.stdout, re.M)
            used = {found for found, _ in ratios}
            good = done.returncode == 0 and len(ratios) == 34  # seventeen entries in two types, all below LAPACK's 30
            largest = max((float(ratio) for _, ratio in ratios), default=0.0)
            told = f"{name} {' '.join(used)}: {len(ratios)} entries, largest ratio {largest} (at most 30)"
            yield told, "" if good else f"{name}: {done.stdout[-1500:]}{done.stderr[-1500:]}"


def _program(platform: Platform, kernel: str) -> Path:
    program = Path(kernel).with_name("accuracy.exe")
    flags = ["-O2", "-std=c++17", "-fcx-limited-range", str(ROOT / "tests" / "native" / "accuracy.cpp")]
    command = [zig(), "c++", "-target", platform.target, *flags, kernel, "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True)
    return program
