"""What is said where there is no kernel: by ``spectralgrad info``, and once in a terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

NOT_BUILT = (
    "not built, so torch.linalg decomposes batches of small matrices, several times slower; to mend it, install a C++ "
    "compiler (g++ or clang) and reinstall spectralgrad from source"
)


def mention(package: Path) -> None:
    """Print in a terminal that there is no kernel, at the first import of an installation.

    A file in the user's cache folder says that it was said; where it cannot be written, nothing is printed.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        return
    with contextlib.suppress(OSError, RuntimeError):
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        said = Path(base, "spectralgrad", f"without-kernel-{package.stat().st_mtime_ns}-{package.stat().st_ino}")
        said.parent.mkdir(parents=True, exist_ok=True)
        said.touch(exist_ok=False)
        print(f"spectralgrad: the native kernel was {NOT_BUILT}.", file=sys.stderr)
