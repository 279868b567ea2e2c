"""Methods in records: by the word that means them, or, for an object that no word means, by its repr."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from spectralgrad.errors import MethodError
from spectralgrad.rules import METHODS, GapMethod, Method, spelling

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_LONGEST = 200


@dataclass(frozen=True)
class Recorded(GapMethod):
    """A method of which only the record is known: it can be shown and compared, not used.

    Example:
        >>> print(Recorded("Mine(limit=3)"))
        Mine(limit=3)
    """

    name: ClassVar[str] = "recorded"
    summary: ClassVar[str] = "known from a record only"
    reference: ClassVar[str] = "a results file"
    text: str = ""

    def __str__(self) -> str:
        return self.text

    def gaps(self, w: Tensor) -> Tensor:
        """Nobody knows them."""
        raise MethodError(f"method {self.text!r} is known from a record only: {HINT}")


HINT = (
    "a method that was passed as an object is recorded by its repr; pass the object again, or give it a name by "
    "spectralgrad.register_method"
)


def text_of(method: str | Method) -> str:
    """How a method is written in records and tables.

    Example:
        >>> from spectralgrad import Taylor
        >>> text_of("svd-taylor:degree=19") == text_of(Taylor(degree=19))
        True
    """
    if isinstance(method, str | Recorded):
        return str(method)
    text = spelling(method) or _ADDRESS.sub("", " ".join(repr(method).split()))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def as_recorded(text: object) -> object:
    """The method that a record names: the text if its name is known here, else a :class:`Recorded`."""
    if not isinstance(text, str) or text.partition(":")[0] in METHODS:
        return text
    return Recorded(text)
