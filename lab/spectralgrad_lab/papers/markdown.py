"""Markdown that mkdocs and GitHub show alike: text without accidental markup, tables, verdicts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .verdicts import AGREES, AMBIGUOUS, DISAGREES, NOT_COMPARABLE, ROUNDING, marked

_CLASS = {AGREES: "agrees", ROUNDING: "agrees", DISAGREES: "disagrees", AMBIGUOUS: "open", NOT_COMPARABLE: "open"}


def plain(text: str) -> str:
    """Text that shows as it is: characters that Markdown or HTML would interpret are escaped.

    Example:
        >>> print(plain("‖A‖_F < |λ_i| * 2"))
        ‖A‖\\_F &lt; \\|λ\\_i\\| \\* 2
    """
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
    return re.sub(r"([\\`*_\[\]|~$])", r"\\\1", text)


def sentence(text: str) -> str:
    """Escaped text with a capital letter and a full stop; an initial Greek letter or symbol stays as it is.

    Example:
        >>> sentence("orthogonal matrices preserve norms"), sentence("ρ is never positive")
        ('Orthogonal matrices preserve norms.', 'ρ is never positive.')
    """
    first = text[:1].upper() if re.match(r"[a-z]+\b(?![\^*/(_])", text) else text[:1]
    return plain(first + text[1:] + ("" if text.endswith((".", "?", "!")) else "."))


def verdict(name: str) -> str:
    """A verdict with its sign, and a class by which the site colors it.

    Example:
        >>> verdict("does not agree")
        '<span class="verdict-disagrees">✗ does not agree</span>'
    """
    return f'<span class="verdict-{_CLASS[name]}">{marked(name)}</span>' if name else marked(name)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table of cells that are escaped already, followed by an empty one."""
    return [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]] + [""]
