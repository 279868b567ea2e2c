"""A folder has one writer at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spectralgrad.errors import SpectralError

from .process_group import Group

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

    The process that leads takes the lock. If the folder holds nothing else afterwards, the lock goes again. Where the
    file system has no locks, or cannot be written, nothing is done.

    Raises:
        RunBusyError: another process is writing there; all processes of the group are told.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with sole_writer(folder, Group()), sole_writer(folder, Group()):  # doctest: +ELLIPSIS
        ...     pass
        Traceback (most recent call last):
        ...
        spectralgrad_lab.training.locks.RunBusyError: ... is being written by another process...
    """
    leads = folder is not None and group.leads
    made = [path for path in (folder, *folder.parents) if not path.exists()] if folder is not None and leads else []
    handle, busy = _taken(folder) if folder is not None and leads else (None, False)
    try:
        if group.total([float(busy)])[0]:
            raise RunBusyError(f"{folder} is being written by another process; wait for it, or stop it")
        yield
    finally:
        if folder is not None and leads and not busy:
            _tidy(folder, made)
        if handle is not None:
            os.close(handle)


def _taken(folder: Path) -> tuple[int | None, bool]:
    """A handle of the lock, and whether another process has it."""
    while True:
        handle = _opened(folder)
        if handle is None:
            return None, False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return handle, True
        except OSError:  # a file system without locks
            return handle, False
        if _same(handle, folder / LOCK):
            return handle, False
        os.close(handle)  # its last owner has removed it since it was opened


def _opened(folder: Path) -> int | None:
    if fcntl is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        return None


def _same(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _tidy(folder: Path, made: list[Path]) -> None:
    """Nothing is left of a run that did not begin: neither the lock alone nor the folders that were made for it."""
    with suppress(OSError):
        if {path.name for path in folder.iterdir()} <= {LOCK}:
            (folder / LOCK).unlink(missing_ok=True)
            for path in made:
                path.rmdir()
