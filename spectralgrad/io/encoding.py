"""Output for terminals of any encoding: characters that the encoding lacks are replaced by ASCII."""

from __future__ import annotations

import codecs
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_HANDLER = "spectralgrad-ascii"
_STANDARD = ("strict", "surrogateescape", "backslashreplace")  # Python's defaults; others were chosen by the user
_ASCII = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "eps", "η": "eta", "κ": "k", "λ": "lambda",
    "μ": "mu", "π": "pi", "σ": "sigma", "Γ": "Gamma", "Λ": "Lambda", "Σ": "Sigma",
    "−": "-", "–": "-", "—": "-", "─": "-", "━": "-", "×": "x", "·": "*", "∘": "o", "±": "+-", "√": "sqrt ",
    "≥": ">=", "≤": "<=", "≈": "~", "→": "->", "↦": "->", "‖": "||", "⟨": "<", "⟩": ">", "°": "*", "ᐟ": "/",
    "‘": "'", "’": "'", "“": '"', "”": '"', "′": "'", "″": "''", "ᵀ": "^T", "ᴴ": "^H", "²": "^2", "³": "^3",
}  # fmt: skip


@contextmanager
def any_encoding() -> Iterator[None]:
    """Return a context in which printing never fails because the encoding lacks a character.

    Example:
        >>> import io
        >>> before, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO(), "ascii")
        >>> with any_encoding():
        ...     print("κ ≥ 10 × ε", flush=True)
        >>> before, sys.stdout = sys.stdout, before
        >>> before.buffer.getvalue().strip()
        b'k >= 10 x eps'
    """
    streams = [stream for stream in (sys.stdout, sys.stderr) if _strict(stream)]
    before = [(stream, stream.errors) for stream in streams]
    for stream in streams:
        stream.reconfigure(errors=_HANDLER)  # type: ignore[union-attr]
    try:
        yield
    finally:
        for stream, errors in before:
            if not stream.closed:
                stream.reconfigure(errors=errors)  # type: ignore[union-attr]


def _strict(stream: Any) -> bool:
    return hasattr(stream, "reconfigure") and getattr(stream, "errors", None) in _STANDARD


def _substituted(problem: UnicodeError) -> tuple[str, int]:
    assert isinstance(problem, UnicodeEncodeError)
    return "".join(map(_ascii, problem.object[problem.start : problem.end])), problem.end


def _ascii(character: str) -> str:
    if character in _ASCII:
        return _ASCII[character]
    plain = unicodedata.normalize("NFKD", character).replace("−", "-").encode("ascii", "ignore").decode("ascii")
    return plain or character.encode("ascii", "backslashreplace").decode("ascii")


codecs.register_error(_HANDLER, _substituted)
