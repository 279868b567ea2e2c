"""Runs the scripts in examples/, for the tests of both packages."""

import re
import runpy
from pathlib import Path

from . import forked

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def output(name: str) -> str:
    """What a script prints in a process of its own, with warnings as errors."""
    code = (
        "import runpy, sys, warnings; warnings.simplefilter('error'); runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    return forked.run("-c", code, EXAMPLES / name, timeout=120, check=True).stdout


def printed(name: str, capsys) -> str:
    """As :func:`output`, in this process, which has imported torch already."""
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def numbers(label: str, text: str) -> list[float]:
    return [float(x) for x in re.findall(rf"{re.escape(label)}\s*([-+]?[\d.]+(?:e[-+]?\d+)?|[-+]?nan)", text)]
