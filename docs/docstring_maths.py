r"""A griffe extension for the API page: the docstrings' Sphinx roles become what mkdocs reads.

``:math:`x``` becomes ``\(x\)``, a ``.. math::`` block becomes ``\[ … \]``, ``:func:`name``` becomes code, the star of a
batch shape such as (*, d) is kept from starting an emphasis, and examples are shown as code.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

_BLOCK = re.compile(r"^([ ]*)\.\. math::[ ]*(.*(?:\n(?:\1[ ]+\S.*))*)", re.MULTILINE)
_INLINE = re.compile(r":math:`([^`]+)`")
_EXAMPLE = re.compile(r"^([ ]*)Example:$", re.MULTILINE)  # griffe knows the plural only, and shows it as code
_ROLE = re.compile(r":(?:func|class|mod|meth|attr):`~?([^`]+)`")


def translate(text: str) -> str:
    """The text with every role replaced."""

    def block(match: re.Match[str]) -> str:
        formula = " ".join(textwrap.dedent(match[2]).split("\n")).strip()
        return f"{match[1]}\\[{re.sub(r' +', ' ', formula)}\\]"

    text = _EXAMPLE.sub(r"\1Examples:", _BLOCK.sub(block, text))
    text = _ROLE.sub(r"`\1`", _INLINE.sub(r"\\(\1\\)", text))
    return text.replace("(*", r"(\*")


class Maths(griffe.Extension):
    """Translate each object's docstring as griffe finds it."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = translate(obj.docstring.value)
