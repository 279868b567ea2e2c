"""Measure the shape of the code: what a call passes through, what is in each room, and who asks about the kernel.

    python tools/shape.py               # prints the tables
    python tools/shape.py --write       # and stores the figures, with which a test compares the code
    python tools/shape.py --tests FILE  # and the cases and seconds of a run of pytest with --junitxml=FILE

A walk is a call of a public function. Its figures are the Python calls inside the package, and the files that they
touch, forward and, after the stroke, backward.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import spectralgrad as sg

ROOT = Path(__file__).resolve().parent.parent
STORED = ROOT / "docs" / "results" / "shape.json"
LIBRARY, LAB = ROOT / "spectralgrad", ROOT / "lab" / "spectralgrad_lab"
SOURCES = (".py", ".cpp", ".hpp", ".def")
LAST_CHANGES = 40  # commits that are searched for additions to the changelog

Walk = tuple[int, int]
Cost = tuple[int, float]


def walks() -> dict[str, Callable[[], Any]]:
    """The calls that are traced, by name; those that end in "backward" return what is differentiated."""
    A, small, M = _positive(64), _positive(3), torch.randn(8, 5, dtype=torch.complex64)
    X, Y = torch.randn(20, 3), torch.randn(20, 3)
    leaf, complex_leaf, points = A.clone().requires_grad_(), M.clone().requires_grad_(), X.clone().requires_grad_()
    layer, features = sg.nn.DecorrelatedBatchNorm2d(8), torch.randn(4, 8, 6, 6)
    return {
        "eigh": lambda: sg.eigh(A),
        "eigh, backward": lambda: sg.eigh(leaf)[0].sum(),
        "eigvalsh": lambda: sg.eigvalsh(A),
        "svd, complex, backward": lambda: sg.svd(complex_leaf, full_matrices=False)[1].sum(),
        "svdvals": lambda: sg.svdvals(small),
        "matrix_inv_sqrt": lambda: sg.matrix_inv_sqrt(A),
        "matrix_inv_sqrt, backward": lambda: sg.matrix_inv_sqrt(leaf).sum(),
        "matrix_power(A, 0.5)": lambda: sg.matrix_power(small, 0.5),
        "matrix_log": lambda: sg.matrix_log(small),
        "matrix_log, backward": lambda: sg.matrix_log(leaf).sum(),
        "polar": lambda: sg.polar(small),
        "procrustes": lambda: sg.procrustes(X, Y),
        "procrustes, backward": lambda: sg.procrustes(points, Y).rotation.sum(),
        "DecorrelatedBatchNorm2d, backward": lambda: layer(features.requires_grad_()).square().sum(),
    }


def _positive(d: int) -> torch.Tensor:
    torch.manual_seed(0)
    X = torch.randn(d, 2 * d)
    return X @ X.mT / d


def measured_walks() -> dict[str, list[Walk]]:
    """Calls and files of each walk: forward, and backward where there is one. The second of two runs counts."""
    found = {}
    for name, call in walks().items():
        for _ in range(2):
            result, forward = traced(call)
            steps = [forward]
            if name.endswith("backward"):
                steps.append(traced(result.backward)[1])
        found[name] = steps
    return found


def traced(call: Callable[[], Any]) -> tuple[Any, Walk]:
    """The result of a call, and the number of Python calls inside the library and of the files they are in."""
    files: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(LIBRARY)):
            files[frame.f_code.co_filename] += 1

    sys.setprofile(note)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    return result, (files.total(), len(files))


def rooms() -> dict[str, tuple[int, int]]:
    """Entries and lines of each folder with code of its own: modules, headers and folders, without ``__init__``."""
    found = {}
    for package in (LIBRARY, LAB):
        for folder in sorted({package, *(file.parent for file in _sources(package))}):
            files = [file for file in folder.iterdir() if file.suffix in SOURCES and file.stem != "__init__"]
            folders = [inner for inner in folder.iterdir() if inner.is_dir() and any(_sources(inner))]
            lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
            found[folder.relative_to(package.parent).as_posix()] = (len(files) + len(folders), lines)
    return found


def _sources(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.suffix in SOURCES)


def askers() -> dict[str, list[str]]:
    """The functions that ask whether the kernel is there, outside ``native``, and those that ask who is watching."""
    serving, watching = [], []
    for file in sorted(LIBRARY.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                name = f"{file.relative_to(LIBRARY).with_suffix('')}.{node.name}"
                if "native" not in file.parts and any(_calls_kernel(inner) for inner in ast.walk(node)):
                    serving.append(name)
                if file.name == "function.py" and isinstance(node.returns, ast.Name) and node.returns.id == "bool":
                    watching.append(name)
    return {"does the kernel serve?": serving, "who is watching?": watching}


def _calls_kernel(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "kernel"


def additions() -> dict[str, int]:
    """How many files each of the last commits touched that add a line to the changelog."""
    log = subprocess.run(
        ["git", "log", f"-{LAST_CHANGES}", "--no-merges", "--format=#%s", "--name-only"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    commits = [part.strip().splitlines() for part in log.split("#")[1:]]
    return {subject: len([f for f in files if f]) for subject, *files in commits if "CHANGELOG.md" in files}


def tiers(report: Path) -> tuple[dict[str, Cost], dict[str, Cost]]:
    """Cases and seconds of the tiers and of the files of tests, from pytest's JUnit report, the longest first."""
    by_tier: dict[str, list[float]] = defaultdict(list)
    by_file: dict[str, list[float]] = defaultdict(list)
    for case in ET.parse(report).iter("testcase"):
        tier = case.find("properties/property[@name='tier']")
        module = next((part for part in case.get("classname", "").split(".") if part.startswith("test_")), "doctests")
        seconds = float(case.get("time", 0))
        by_tier["no tier" if tier is None else tier.get("value", "")].append(seconds)
        by_file[module].append(seconds)
    return _costs(by_tier), _costs(by_file)


def _costs(found: dict[str, list[float]]) -> dict[str, Cost]:
    return dict(sorted(((n, (len(t), round(sum(t), 1))) for n, t in found.items()), key=lambda x: -x[1][1]))


def figures() -> dict[str, Any]:
    """What is stored."""
    return {"walks": measured_walks(), "rooms": rooms(), "askers": {k: len(v) for k, v in askers().items()}}


def _print(found: dict[str, Any]) -> None:
    for name, steps in found["walks"].items():
        print(f"{name:36} " + " / ".join(f"{calls} ({files})" for calls, files in steps))
    print()
    for name, (entries, lines) in found["rooms"].items():
        print(f"{name:44} {entries:3} entries {lines:6} lines")
    print()
    for question, names in askers().items():
        print(f"{question:24} {len(names):3}  {', '.join(names)}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"store the figures in {STORED.relative_to(ROOT)}")
    parser.add_argument("--tests", type=Path, metavar="FILE", help="report that pytest wrote with --junitxml")
    options = parser.parse_args()
    found = figures()
    _print(found)
    print("\nFiles touched by the last commits with a line in CHANGELOG.md:")
    for subject, count in additions().items():
        print(f"{count:4}  {subject[:100]}")
    if options.tests:
        for table in tiers(options.tests):
            print()
            for name, (cases, seconds) in table.items():
                print(f"{name:44} {cases:6} cases {seconds:8} s")
    if options.write:
        STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
