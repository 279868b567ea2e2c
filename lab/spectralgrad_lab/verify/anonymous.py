"""Texts without what identifies a user: paths, and the names of the machine and of the account."""

from __future__ import annotations

import getpass
import platform
import re

_LONGEST = 600
_PATHS = re.compile(r"(?:file://|(?<![\w:/]))(?:[A-Za-z]:)?(?:[\\/](?:[\w.@+~ -]*[\w.@+~-]))+[\\/]|~[\\/]")


def anonymous(text: str) -> str:
    """Return a message without folders, host name and user name, and not longer than a paragraph.

    Example:
        >>> anonymous("error in /home/me/project/train.py, line 3")
        'error in train.py, line 3'
    """
    text = _PATHS.sub("", text)
    for name in _names():
        text = re.sub(rf"\b{re.escape(name)}\b", "…", text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def _names() -> list[str]:
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = ""
    host = platform.node()
    generic = {"", "root", "user", "localhost", "runner", "eigh", "svd"}
    return [name for name in {user, host, host.partition(".")[0]} - generic if len(name) > 2]
