"""SHA-256 digests that reveal files damaged after they were written. They do not reveal forgeries."""

from __future__ import annotations

import errno
import hashlib
import json
import re
from pathlib import Path
from typing import Any

_SEAL = re.compile(rb'\{\n "sha256": "([0-9a-f]{64})",')
_CHUNK = 1 << 20


def digest(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal digits."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def verify_written(path: Path, wanted: str) -> None:
    """Read back a file that was just written.

    Raises:
        OSError: it reads differently; it is removed.
    """
    if digest(path) != wanted:
        path.unlink(missing_ok=True)
        raise OSError(errno.EIO, "the file reads back differently from what was written", str(path))


def sealed(content: dict[str, Any]) -> bytes:
    """Strict JSON of a non-empty dictionary that begins with the SHA-256 of all following bytes.

    Example:
        >>> unsealed(sealed({"step": 3}))
        b'{\\n "step": 3\\n}'
    """
    body = json.dumps(content, indent=1, allow_nan=False).encode("utf-8")[1:]
    return b'{\n "sha256": "' + hashlib.sha256(body).hexdigest().encode() + b'",' + body


def unsealed(raw: bytes) -> bytes:
    """The JSON in what :func:`sealed` returned.

    Raises:
        ValueError: a byte has changed.
    """
    seal = _SEAL.match(raw)
    if seal is None or hashlib.sha256(raw[seal.end() :]).hexdigest().encode() != seal[1]:
        raise ValueError("the file is damaged: its SHA-256 does not match its contents")
    return b"{" + raw[seal.end() :]
