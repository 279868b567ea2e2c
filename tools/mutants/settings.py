"""Reads ``settings.toml``: the files to mutate, the tests to run, and the mutants that no test can detect."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STORE = ROOT / "build" / "mutants"
SETTINGS: dict[str, Any] = tomllib.loads((HERE / "settings.toml").read_text(encoding="utf-8"))


def files(names: list[str]) -> list[Path]:
    """The modules to mutate, or only those whose path ends with one of ``names``."""
    listed = [ROOT / "spectralgrad" / line for line in SETTINGS["files"]]
    return [path for path in listed if not names or any(str(path).endswith("/" + name) for name in names)]


def tests() -> list[str]:
    """The test files to run, as paths relative to the root."""
    found = [path for pattern in SETTINGS["tests"] for path in sorted(ROOT.glob(pattern))]
    return [str(path.relative_to(ROOT)) for path in found if path.name not in SETTINGS["without"]]
