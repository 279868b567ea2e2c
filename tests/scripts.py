"""Runs the scripts in examples/, for the tests of both packages."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def output(name: str) -> str:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(EXAMPLES.parent),
        "PYTHONIOENCODING": "utf-8",
    }
    command = [sys.executable, "-W", "error", str(EXAMPLES / name)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed(name: str, capsys) -> str:
    """As :func:`output`, in this process, which has imported torch already."""
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def numbers(label: str, text: str) -> list[float]:
    return [float(x) for x in re.findall(rf"{re.escape(label)}\s*([-+]?[\d.]+(?:e[-+]?\d+)?|[-+]?nan)", text)]
