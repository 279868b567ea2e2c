"""Files written whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any


def require_folder(target: Path | None) -> None:
    """Refuse a target that could not be written after minutes of work."""
    if target is not None and not target.absolute().parent.is_dir():
        raise FileNotFoundError(f"no folder to write {target} into: {target.parent}")


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
