"""A folder has one writer at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import SpectralError
from .parallel import Group

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


class RunBusyError(SpectralError, RuntimeError):
    """Another process is writing the run."""


@contextmanager
def sole_writer(folder: Path | None, group: Group) -> Iterator[None]:
    """Within this block no other run writes into the folder; the system ends it when the process dies.

    The process that leads takes the lock. Where the file system has none, or cannot be written, nothing is done.

    Raises:
        RunBusyError: another process is writing there; all processes of the group are told.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with sole_writer(folder, Group()), sole_writer(folder, Group()):  # doctest: +ELLIPSIS
        ...     pass
        Traceback (most recent call last):
        ...
        spectralgrad.lab.locks.RunBusyError: ... is being written by another process...
    """
    handle = _opened(folder) if folder is not None and group.leads else None
    try:
        busy = handle is not None and not _taken(handle)
        if group.total([float(busy)])[0]:
            raise RunBusyError(f"{folder} is being written by another process; wait for it, or stop it")
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _opened(folder: Path) -> int | None:
    if fcntl is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        return None


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
