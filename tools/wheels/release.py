"""What a release needs besides wheels: one version, a section in the changelog, and a test of an installed wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import venv
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from .archive import version
from .kernels import ROOT

TESTS = ("native", "native_eigh", "native_svd", "native_svd_ways", "selftest", "feature_passes", "lapack_acceptance")
OWN = {"spectralgrad/_version.py": r'^__version__ = "(.+)"$'}
STATED = {  # where else the version is stated
    "CITATION.cff": r"^version: (.+)$",
    "lab/spectralgrad_lab/__init__.py": r'^__version__ = "(.+)"$',
    "recipe/recipe.yaml": r'^  version: "(.+)"$',
}
_TORCH = "torch==2.13.0"


def complaints(root: Path = ROOT) -> Iterator[str]:
    """Yield which file states another version than ``_version.py``, and whether the changelog lacks a date."""
    own = version(root / "spectralgrad")
    for file, pattern in STATED.items():
        stated = re.search(pattern, (root / file).read_text(encoding="utf-8"), re.M)
        if stated is None or stated[1] != own:
            yield f"{file} states the version {stated and stated[1]}, expected {own}"
    head = re.search(rf"^## {re.escape(own)} – (.+)$", _changelog(root), re.M)
    if head is None:
        yield f"CHANGELOG.md has no section {own}"
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", head[1]):
        yield f"CHANGELOG.md: the section {own} has no date: {head[1]}"


def set_version(wanted: str, root: Path = ROOT) -> None:
    """Write a version into every file that states it, and today's date into its section of the changelog.

    Raises:
        ValueError: the version is not of the form 1.2.3, and nothing was written.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", wanted):
        raise ValueError(f"expected a version such as 1.2.3, got {wanted!r}")
    for file, pattern in {**OWN, **STATED}.items():
        _replace(root / file, pattern, wanted)
    _replace(root / "CHANGELOG.md", rf"^## {re.escape(wanted)} – (unreleased)$", f"{date.today():%Y-%m-%d}")


def _replace(file: Path, pattern: str, wanted: str) -> None:
    """Replace the group of the first match."""
    text = file.read_text(encoding="utf-8")
    found = re.search(pattern, text, re.M)
    if found:
        file.write_text(text[: found.start(1)] + wanted + text[found.end(1) :], encoding="utf-8")


def section(root: Path = ROOT) -> str:
    """Return what the changelog says about the version."""
    _, _, rest = _changelog(root).partition(f"\n## {version(root / 'spectralgrad')} – ")
    return rest.partition("\n## ")[0].partition("\n")[2].strip()


def _changelog(root: Path) -> str:
    return (root / "CHANGELOG.md").read_text(encoding="utf-8")


def test(wheel: Path) -> int:
    """Install a wheel into a new environment without the sources, and run the tests of the kernel; return pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(Path(folder, "venv"), with_pip=True)
        python = Path(folder, "venv", *(("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")))
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, str(wheel), _TORCH, "pytest>=8", "mpmath>=1.3", "scipy>=1.11"], check=True)
        shutil.copytree(ROOT / "tests", Path(folder, "tests"), ignore=shutil.ignore_patterns("lab", "__pycache__"))
        for name in ("conftest.py", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)
        info = [str(python), "-c", "import spectralgrad.native as n; k = n.kernel(); print(k.path, k.isa)"]
        subprocess.run(info, check=True, cwd=folder)
        files = [f"tests/test_{name}.py" for name in TESTS]
        command = [str(python), "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", *files]
        return subprocess.run(command, cwd=folder, env={**os.environ, "CXX": "no-compiler"}).returncode
