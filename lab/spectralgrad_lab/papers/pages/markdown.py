"""Markdown that mkdocs and GitHub show alike: text without accidental markup, tables, verdicts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..verdicts import AGREES, ANALYSIS, DISAGREES, OPPOSITE, REPRODUCED, RESULT, ROUNDING, marked

_CLASS = {AGREES: "agrees", ROUNDING: "agrees", REPRODUCED: "agrees", DISAGREES: "disagrees", OPPOSITE: "disagrees"}


def plain(text: str) -> str:
    """Text that shows as it is: characters that Markdown or HTML would interpret are escaped.

    Example:
        >>> print(plain("‖A‖_F < |λ_i| * 2"))
        ‖A‖\\_F &lt; \\|λ\\_i\\| \\* 2
    """
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
    return re.sub(r"([\\`*_\[\]|~$])", r"\\\1", text)


def capital(text: str) -> str:
    """Escaped text with a capital letter if it begins with a word; a symbol stays as it is.

    Example:
        >>> capital("orthogonal matrices"), capital("ρ is never positive"), capital("lᵀw ≥ 1"), capital("q/p")
        ('Orthogonal matrices', 'ρ is never positive', 'lᵀw ≥ 1', 'q/p')
    """
    return plain(text[:1].upper() + text[1:] if re.match(r"[a-z]+\b(?![\^*/(_])", text) else text)


def sentence(text: str) -> str:
    """Escaped text as a sentence, with a full stop.

    Example:
        >>> sentence("orthogonal matrices preserve norms")
        'Orthogonal matrices preserve norms.'
    """
    return capital(text) + ("" if text.endswith((".", "?", "!")) else ".")


def verdict(name: str, weight: str = "") -> str:
    """A verdict with its sign, and a class by which the site colors it: red if a result or an analysis is affected.

    Example:
        >>> verdict("does not agree", "analysis")
        '<span class="verdict-disagrees">✗&nbsp;does not agree</span>'
        >>> verdict("does not agree", "misprint")
        '<span class="verdict-open">✎&nbsp;does not agree</span>'
    """
    sign, _, words = marked(name, weight).partition(" ")
    light = name == DISAGREES and weight not in ("", RESULT, ANALYSIS)
    color = "open" if light else _CLASS.get(name, "open")
    return f'<span class="verdict-{color}">{sign}&nbsp;{words}</span>' if name else sign


def folded(title: str, lines: Sequence[str]) -> list[str]:
    """Lines that show when the reader opens their title; headings inside keep their anchors."""
    return ['<details markdown="1">', f"<summary>{title}</summary>", "", *lines, "</details>", ""]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table of cells that are escaped already, followed by an empty one."""
    return [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]] + [""]
