"""Where in the source a call comes from."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch

_OURS = Path(__file__).resolve().parents[2]
# Frames of torch, of this package and of the decorators between them are not places that a reader can change.
_SKIPPED = (f"{Path(torch.__file__).parent}{os.sep}", f"{_OURS}{os.sep}", "<frozen")
_STANDARD = sysconfig.get_paths()
_INSTALLED = tuple({_STANDARD[name] for name in ("purelib", "platlib", "stdlib", "platstdlib")})
_WRAPPERS = tuple(str(Path(_STANDARD["stdlib"]) / name) for name in ("contextlib.py", "functools.py"))
_DEPTH = 100  # frames examined for the caller outside installed packages


@dataclass(frozen=True)
class Place:
    """A line of source: the one that makes the call, and the caller outside installed packages, if it differs."""

    file: str
    line: int
    function: str
    called_from: str

    @property
    def code(self) -> str:
        """The text of the line; empty if the source is not available."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{_short(self.file)}:{self.line}" if self.line else self.file


def calling_place() -> Place:
    """Return the innermost line outside torch and this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((*_SKIPPED, *_WRAPPERS)):
        frame = frame.f_back
    if frame is None:
        return Place("<unknown>", 0, "", "")
    code = frame.f_code
    return Place(code.co_filename, frame.f_lineno, code.co_name, _outside(frame))


def _outside(frame: FrameType) -> str:
    """The nearest caller that is not in an installed package, as ``file:line``; empty if it is ``frame`` itself."""
    if not frame.f_code.co_filename.startswith(_INSTALLED):
        return ""
    above = frame.f_back
    for _ in range(_DEPTH):
        if above is None:
            return ""
        if not above.f_code.co_filename.startswith((*_INSTALLED, *_SKIPPED)):
            return f"{_short(above.f_code.co_filename)}:{above.f_lineno}"
        above = above.f_back
    return ""


def _short(file: str) -> str:
    """The file relative to the working directory or to the installed packages, where it lies in one of them."""
    for base in (Path.cwd(), *map(Path, _INSTALLED)):
        if Path(file).is_relative_to(base):
            return str(Path(file).relative_to(base))
    return file
