"""Lock the folder of a run, so that only one process writes to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spectralgrad.errors import SpectralError

from ..processes.process_group import Group

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


class RunBusyError(SpectralError, RuntimeError):
    """Another process is writing to the folder of the run."""


@contextmanager
def sole_writer(folder: Path | None, group: Group) -> Iterator[None]:
    """Context in which no other run can write to the folder.

    The leading process takes the lock; the operating system releases it if that process dies. The lock file is removed
    afterwards if the folder contains nothing else. On file systems without locks, and where nothing can be written,
    there is no lock.

    Raises:
        RunBusyError: another process holds the lock; raised in all processes of the group.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with sole_writer(folder, Group()), sole_writer(folder, Group()):  # doctest: +ELLIPSIS
        ...     pass
        Traceback (most recent call last):
        ...
        spectralgrad_lab.training.storage.locks.RunBusyError: ... is being written by another process...
    """
    is_leader = folder is not None and group.is_leader
    made = [path for path in (folder, *folder.parents) if not path.exists()] if folder is not None and is_leader else []
    handle, busy = _acquire(folder) if folder is not None and is_leader else (None, False)
    try:
        if group.total([float(busy)])[0]:
            raise RunBusyError(f"{folder} is being written by another process; wait for it, or stop it")
        yield
    finally:
        if folder is not None and is_leader and not busy:
            _remove_if_unused(folder, made)
        if handle is not None:
            os.close(handle)


def _acquire(folder: Path) -> tuple[int | None, bool]:
    """A handle of the lock file, and whether another process holds the lock."""
    while True:
        handle = _open(folder)
        if handle is None:
            return None, False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return handle, True
        except OSError:  # a file system without locks
            return handle, False
        if _is_same_file(handle, folder / LOCK):
            return handle, False
        os.close(handle)  # its last owner removed the file after we opened it: try again


def _open(folder: Path) -> int | None:
    if fcntl is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        return None


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _remove_if_unused(folder: Path, made: list[Path]) -> None:
    """Leave nothing behind of a run that did not start: neither the lock file nor the folders created for it."""
    with suppress(OSError):
        if {path.name for path in folder.iterdir()} <= {LOCK}:
            (folder / LOCK).unlink(missing_ok=True)
            for path in made:
                path.rmdir()
