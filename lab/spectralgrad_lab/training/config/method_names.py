"""How methods are recorded: by their name, or by their repr if no name describes the object."""

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
class RecordedMethod(GapMethod):
    """A method that is known only from a record: it can be shown and compared, but not used.

    Example:
        >>> print(RecordedMethod("Mine(limit=3)"))
        Mine(limit=3)
    """

    name: ClassVar[str] = "recorded"
    summary: ClassVar[str] = "known only from a record"
    reference: ClassVar[str] = "a results file"
    text: str = ""

    def __str__(self) -> str:
        return self.text

    def gaps(self, w: Tensor) -> Tensor:
        """Not available."""
        raise MethodError(f"method {self.text!r} is known only from a record: {HINT}")


HINT = (
    "a method that was passed as an object is recorded by its repr; pass the object again, or give it a name with "
    "spectralgrad.register_method"
)


def method_text(method: str | Method) -> str:
    """The text for a method in records and tables.

    Example:
        >>> from spectralgrad import Taylor
        >>> method_text("svd-taylor:degree=19") == method_text(Taylor(degree=19))
        True
    """
    if isinstance(method, str | RecordedMethod):
        return str(method)
    text = str(method) if spelling(method) else _ADDRESS.sub("", " ".join(repr(method).split()))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def as_recorded(text: object) -> object:
    """The method of a record: the text itself if its name is registered, otherwise a :class:`RecordedMethod`."""
    if not isinstance(text, str) or text.partition(":")[0] in METHODS:
        return text
    return RecordedMethod(text)
