"""Run the library's tests with every version of torch that is supported: python -m tools.matrix

For each version, ``make test-torch`` creates an environment with it and runs the fast tests. A version whose tests
passed at the present commit is not run again, so the command continues where it was interrupted. What the tests print
is in ``build/matrix/VERSION.log``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "matrix"
# The versions of torch, from the oldest that is supported, and a version of Python for each. All are used between them.
VERSIONS = {"2.6.0": "3.10", "2.8.0": "3.12", "2.10.0": "3.11", "2.13.0": "3.11", "2.15.0": "3.13"}

Result = dict[str, Any]


def main() -> int:
    """Parse the arguments, test the versions one after another and print a table; returns the number of failures."""
    parser = argparse.ArgumentParser(prog="python -m tools.matrix", description=__doc__.split("\n")[0])
    parser.add_argument("versions", nargs="*", default=list(VERSIONS), help=f"default: {' '.join(VERSIONS)}")
    parser.add_argument("--tests", default="tests spectralgrad --ignore=tests/lab -m fast", help="arguments of pytest")
    parser.add_argument("--again", action="store_true", help="also run versions that passed at the present commit")
    options = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    results = [_tested(version, options.tests, options.again) for version in options.versions]
    print(table(results))
    return sum(result["failed"] for result in results)


def _tested(version: str, tests: str, again: bool) -> Result:
    """Return the result of a version, from the run of the present commit if there is one that passed."""
    file, state = RESULTS / f"{version}.json", {"state": _state(), "tests": tests}
    earlier: Result = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if not again and earlier.get("failed") == 0 and state == {key: earlier.get(key) for key in state}:
        return earlier
    python = interpreter(VERSIONS.get(version, ""))
    log, report = RESULTS / f"{version}.log", RESULTS / f"{version}.xml"
    report.unlink(missing_ok=True)
    print(f"torch {version} with {python}; output in {log.relative_to(ROOT)}", flush=True)
    command = ["make", "test-torch", f"VERSION={version}", f"PYTHON={python}", f"ARGS={tests} --junit-xml={report}"]
    with log.open("w", encoding="utf-8") as output:
        subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    result = {"torch": version, "python": _version_in(version), **state, **counted(report)}
    if not result["state"].endswith("-dirty"):
        file.write_text(json.dumps(result, indent=2), encoding="utf-8")
    return result


def _state() -> str:
    """Return the present commit, with ``-dirty`` if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--match=", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def interpreter(wanted: str) -> str:
    """Return ``pythonX.Y`` if it can be started, otherwise the interpreter that runs this program."""
    found = shutil.which(f"python{wanted}") if wanted else None
    works = found and subprocess.run([found, "--version"], capture_output=True).returncode == 0  # pyenv's may not start
    return found if found and works else sys.executable


def _version_in(version: str) -> str:
    """Return the version of Python in the environment of a torch."""
    program = "import platform; print(platform.python_version())"
    python = ROOT / f".venv-torch-{version}" / "bin" / "python"
    if not python.exists():
        return "–"
    return subprocess.run([python, "-c", program], capture_output=True, text=True).stdout.strip()


def counted(report: Path) -> Result:
    """Return how many tests passed, failed and were skipped for which reasons; a run without a report has failed."""
    if not report.exists():
        return {"passed": 0, "failed": 1, "skipped": 0, "reasons": {}}
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    skips = [skip.get("message", "") for case in cases if (skip := case.find("skipped")) is not None]
    passed = len(cases) - failed - len(skips)
    return {"passed": passed, "failed": failed, "skipped": len(skips), "reasons": dict(Counter(skips).most_common())}


def table(results: list[Result]) -> str:
    """Return a Markdown table with a line for each version, and the reasons of skipped tests."""
    columns = ("torch", "python", "passed", "failed", "skipped")
    rows = [columns, ("---",) * len(columns), *(tuple(str(result[name]) for name in columns) for result in results)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    for result in results:
        lines += [f"torch {result['torch']}: {count} skipped: {reason}" for reason, count in result["reasons"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
