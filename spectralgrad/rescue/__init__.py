"""Makes torch's own spectral functions use this library inside code that cannot be edited."""

from .override import override_linalg

__all__ = ["override_linalg"]
