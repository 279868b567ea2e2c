"""Reads ``settings.toml``: the files to mutate, the tests to run, and the mutants that no test can detect."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STORE = ROOT / "build" / "mutants"
SETTINGS: dict[str, Any] = tomllib.loads((HERE / "settings.toml").read_text(encoding="utf-8"))
EQUIVALENT: dict[str, str] = {entry["mutant"]: entry["reason"] for entry in SETTINGS["equivalent"]}


class Part(NamedTuple):
    """The modules of a package that are mutated, and the test files that may detect it."""

    name: str
    files: list[Path]
    tests: list[str]
    parametrizations: int

    def chosen(self, names: list[str]) -> list[Path]:
        """The modules that are in one of the folders ``names`` or whose path ends with one; all without names."""
        relative = {path: f"/{path.relative_to(ROOT)}" for path in self.files}
        wanted = lambda path: any(f"/{name}/" in path or path.endswith(f"/{name}") for name in names)  # noqa: E731
        return [path for path, text in relative.items() if not names or wanted(text)]


def parts() -> list[Part]:
    """All parts of ``settings.toml``."""
    return [
        Part(name, _found(part["rooms"], part["other_files"]), _tests(part), part["parametrizations"])
        for name, part in SETTINGS["part"].items()
    ]


def _found(rooms: list[str], others: list[str]) -> list[Path]:
    """The modules of these folders and their subfolders, and these modules, without those that match ``others``."""
    every = [path for room in rooms for path in ([ROOT / room] if room.endswith(".py") else _modules(ROOT / room))]
    return [path for path in every if not any(path.match(pattern) for pattern in [*others, "__init__.py"])]


def _modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def _tests(part: dict[str, Any]) -> list[str]:
    """The test files of a part, as paths relative to the root."""
    found = [path for pattern in part["tests"] for path in sorted(ROOT.glob(pattern))]
    return [str(path.relative_to(ROOT)) for path in found if path.name not in part["other_tests"]]
