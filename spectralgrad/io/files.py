"""Atomic writing of files, and error messages that name the file."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def require_folder(target: Path | None) -> None:
    """Raise FileNotFoundError early if the folder of ``target`` does not exist, before minutes of work are lost."""
    if target is not None and not target.absolute().parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: the folder {target.parent} does not exist; create it first")


@contextmanager
def naming(path: Path | None, temporary: Path | None = None) -> Iterator[None]:
    """Return a context in which OSErrors name the file; the error for a full disk, for example, does not by itself.

    Args:
        path: the file or folder in use.
        temporary: its temporary name, which is replaced by ``path`` in errors.

    Example:
        >>> import errno
        >>> try:
        ...     with naming(Path("runs/log.csv")):
        ...         raise OSError(errno.ENOSPC, "No space left on device")
        ... except OSError as problem:
        ...     print(said(problem))
        runs/log.csv: No space left on device
    """
    try:
        yield
    except OSError as problem:
        unknown = (None, *([str(temporary)] if temporary else []))
        if path is None or problem.errno is None or problem.filename not in unknown:
            raise
        raise OSError(problem.errno, problem.strerror, str(path)) from problem


def said(problem: OSError) -> str:
    """Return an OSError as text: the file and the problem."""
    if problem.filename is None or problem.strerror is None:
        return problem.strerror or str(problem)
    return f"{problem.filename}: {problem.strerror}"


def write_bytes(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write a file atomically: into a temporary file next to the target, which is then renamed.

    Args:
        path: the target; an existing file is replaced. Its permissions follow the umask.
        content: the complete content.
        durable: return only after file and name have been flushed to disk, so that they survive a power failure.

    Raises:
        OSError: the file could not be written; an existing file is unchanged.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "a.txt"
        >>> write_bytes(target, b"whole")
        >>> target.read_bytes(), len(list(target.parent.iterdir()))
        (b'whole', 1)
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    with naming(path, temporary):
        try:
            with temporary.open("xb") as file:
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            _settle(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write text in UTF-8, as :func:`write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, content: dict[str, Any], *, durable: bool = False) -> None:
    """Write strict JSON (without NaN and infinity), as :func:`write_bytes` does."""
    write_bytes(path, json.dumps(content, indent=1, allow_nan=False).encode("utf-8"), durable=durable)


def _settle(folder: Path) -> None:
    """Flush a folder, and so the names in it, to disk; only POSIX systems support this."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
