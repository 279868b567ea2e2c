"""Atomic writing of files, and error messages that name the file."""

from __future__ import annotations

import argparse
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PLOTS = (".png", ".svg", ".pdf")  # endings of plots


def path_argument(text: str) -> Path:
    """Return a path from the command line; an empty text, which would mean the current folder, is refused.

    Example:
        >>> path_argument("runs/a").name
        'a'
    """
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a path, got an empty text")
    return Path(text)


def require_folder(target: Path) -> None:
    """Raise FileNotFoundError if the folder of ``target`` does not exist."""
    if not target.absolute().parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: the folder {target.parent} does not exist; create it first")


def require_writable(target: Path | None, endings: Sequence[str] = ()) -> None:
    """Raise an OSError early if the file ``target`` cannot be written, before minutes of work are lost.

    Args:
        target: the file; None is accepted.
        endings: allowed endings of its name, which selects the format (default: any).

    Raises:
        ValueError: its name does not have one of the endings.
        FileNotFoundError: its folder does not exist.
        OSError: its folder is not writable, or it is a folder, a device or a pipe.
    """
    if target is None:
        return
    if endings and target.suffix.lower() not in endings:
        raise ValueError(f"cannot write {target}: expected a name that ends in {', '.join(endings)}")
    require_folder(target)
    if target.exists() and not target.is_file():
        raise OSError(f"cannot write {target}: it is {'a folder' if target.is_dir() else 'not a file'}")
    _probe(target)


def require_writable_folder(target: Path | None) -> None:
    """Raise an OSError early if no file can be written to the folder ``target``, which need not exist yet."""
    if target is not None and target.is_dir():
        _probe(target / "file")
    elif target is not None:
        require_writable(target)
        if target.exists():
            raise NotADirectoryError(f"cannot write to {target}: expected a folder, got a file")


def _probe(target: Path) -> None:
    """Create a temporary file beside the target; permissions alone do not tell."""
    temporary = _temporary(target)
    with naming(target, temporary):
        temporary.open("xb").close()
        temporary.unlink()


def _temporary(path: Path) -> Path:
    return path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")


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
    temporary = _temporary(path)
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
