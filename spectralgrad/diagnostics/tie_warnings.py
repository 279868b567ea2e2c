"""Warnings of backward passes whose derivative does not exist."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..autograd.existence import KINDS, REMEDIES, Flaw
from ..dispatch import observation
from ._doctor.places import calling_place

__all__ = ["GaugeWarning", "gauge_warnings"]


class GaugeWarning(UserWarning):
    """A derivative does not exist at a tie or a kink, or a function composed by hand loses part of its gradient."""


_shown: dict[Any, Any] = {}  # so that the filter "default" shows a warning once for each line of source


@contextmanager
def gauge_warnings() -> Iterator[None]:
    """Context in which a backward pass warns if a derivative does not exist there.

    It warns if a loss depends on the choice of eigenvectors at a tie, treats tied eigenvalues or singular values
    differently, or depends on a function that is cut at a tie or has a kink there, and if V f(λ) Vᴴ, computed from
    eigenvalues and eigenvectors, loses part of its gradient at a tie; the module :mod:`spectralgrad.autograd.existence`
    derives how this is detected. Symmetric functions of tied eigenvalues and projectors onto whole eigenspaces have
    derivatives and are passed over.

    The warning is a :class:`GaugeWarning` and names the line of the call that is differentiated. If that call was made
    before the context was entered, it names the line that started the backward pass. The check reads values, so there
    are no warnings inside torch.vmap and torch.compile. It is meant for debugging: it applies to the whole process and
    synchronises with the device.

    Example:
        >>> import warnings, spectralgrad as sg
        >>> A = torch.eye(2, requires_grad=True)
        >>> with warnings.catch_warnings(record=True) as caught, gauge_warnings():
        ...     warnings.simplefilter("always")
        ...     sg.eigh(A).eigenvectors[0, 1].backward()
        >>> caught[0].category.__name__
        'GaugeWarning'
    """
    with observation.observing(_warner):
        yield


def _warner() -> observation.Observer:
    """Return what warns of flaws, at the line of source that is running now."""
    place = calling_place()

    def warn(flaws: list[Flaw]) -> None:
        if _warner in observation.sources:
            for flaw in flaws:
                warnings.warn_explicit(_text(flaw), GaugeWarning, place.file, place.line, registry=_shown)

    return warn


def _text(flaw: Flaw) -> str:
    amount = "" if flaw.kind == "lost" else f" ({flaw.share:.2g} of the cotangent)"
    return f"{KINDS[flaw.kind]}{amount}. {REMEDIES[flaw.kind]}"
