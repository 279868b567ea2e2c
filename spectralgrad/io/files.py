"""Files written whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def require_folder(target: Path | None) -> None:
    """Refuse a target that could not be written after minutes of work."""
    if target is not None and not target.absolute().parent.is_dir():
        raise FileNotFoundError(f"no folder to write {target} into: {target.parent}")


@contextmanager
def naming(path: Path | None, temporary: Path | None = None) -> Iterator[None]:
    """Within this block an error of the system names the file, which a full disk by itself does not.

    Args:
        path: the file or folder that is worked on.
        temporary: a temporary name for it.

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
    """An error of the system in words: the file, and what is wrong with it."""
    if problem.filename is None or problem.strerror is None:
        return problem.strerror or str(problem)
    return f"{problem.filename}: {problem.strerror}"


def write_bytes(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write beside the target and move into place, so that a file is there whole or not at all.

    Args:
        path: the target; what was there is replaced. Its permissions follow the umask.
        content: all of it.
        durable: return only when file and name are on the disk, so that a power cut cannot take them back.

    Raises:
        OSError: it could not be written; what was there before still is.

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
    """The same for text, in UTF-8."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, content: dict[str, Any], *, durable: bool = False) -> None:
    """The same for what strict JSON can hold."""
    write_bytes(path, json.dumps(content, indent=1, allow_nan=False).encode("utf-8"), durable=durable)


def _settle(folder: Path) -> None:
    """Have the names in a folder on the disk, where a folder can be opened for that."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
