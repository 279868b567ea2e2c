"""Wheels as files: the one without kernel, which setuptools builds, and copies of it with a kernel for a platform."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from .kernels import ROOT, Platform

_DATE = (2020, 1, 1, 0, 0, 0)  # of all files, so that a wheel depends on its content only


def plain(package: Path, folder: Path, kind: str) -> Path:
    """Build the source distribution ("sdist") of a package, or its wheel ("wheel"), without kernel; return the file."""
    before = set(folder.glob("*"))
    command = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(folder), str(package)]
    environment = {**os.environ, "SPECTRALGRAD_BUILD": "none", "SOURCE_DATE_EPOCH": "1577836800"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"building the {kind} of {package} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    (made,) = set(folder.glob("*")) - before
    return made


def with_kernel(wheel: Path, kernel: Path, platform: Platform) -> Path:
    """Write a copy of a wheel for any platform that contains the kernel, beside it; return its path."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}
    (described,) = [name for name in files if name.endswith(".dist-info/WHEEL")]
    head = [line for line in files[described].decode().splitlines() if line and not line.startswith(("Tag:", "Root-"))]
    tags = [f"Tag: py3-none-{tag}" for tag in platform.tag.split(".")]
    files[described] = "\n".join([*head, "Root-Is-Purelib: false", *tags, ""]).encode()
    files[f"spectralgrad/native/{platform.file}"] = kernel.read_bytes()
    files[described.replace("/WHEEL", "/RECORD")] = _record(files, described.replace("/WHEEL", "/RECORD"))
    target = wheel.with_name(wheel.name.replace("-none-any.", f"-none-{platform.tag}."))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = (0o755 if name.endswith(platform.file) else 0o644) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return target


def _record(files: dict[str, bytes], own: str) -> bytes:
    """The list of files with their hashes and sizes; its own line has neither."""
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    return "\n".join([*lines, f"{own},,", ""]).encode()


def version(package: Path = ROOT / "spectralgrad") -> str:
    """Return the version of a package, without importing it."""
    scope: dict[str, str] = {}
    exec((package / "_version.py").read_text(encoding="utf-8"), scope)
    return scope["__version__"]
