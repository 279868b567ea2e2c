"""The error for networks that cannot be built."""

from __future__ import annotations

from spectralgrad.errors import SpectralError


class NetworkError(SpectralError, ValueError):
    """A network is unknown, or its settings contradict each other."""


def check_choice(value: str, choices: tuple[str, ...], name: str) -> None:
    """Raise NetworkError for a value that is not among the choices."""
    if value not in choices:
        raise NetworkError(f"expected {name} to be one of {', '.join(choices)}, got {value!r}")
