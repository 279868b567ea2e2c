"""What can be wrong with an image file, in one line that names it."""

from __future__ import annotations

from pathlib import Path

from spectralgrad.errors import SpectralError


class PictureError(SpectralError, ValueError):
    """An image file cannot be read or written. ``path`` is the file.

    Args:
        path: the file.
        problem: what is wrong and, if there is something, what to do.

    Example:
        >>> print(PictureError("cat.png", "the file is empty"))
        cat.png: the file is empty
    """

    def __init__(self, path: Path | str, problem: str) -> None:
        self.path = Path(path)
        super().__init__(f"{path}: {problem}")


class PictureWarning(UserWarning):
    """An image file was read or written, but some of its content was lost."""
