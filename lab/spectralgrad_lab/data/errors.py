"""The error that every reader raises: which file, what is wrong with it, where to get it."""

from __future__ import annotations

from pathlib import Path

from spectralgrad.errors import SpectralError


class DataError(SpectralError, ValueError):
    """Data are missing, damaged or of the wrong type. ``path`` is the file or folder, if there is one.

    Args:
        problem: what is wrong.
        path: the file or folder.
        source: a sentence that says where to get the data.

    Example:
        >>> print(DataError("expected 30730000 bytes, got 12", path="test_batch.bin", source="See the CIFAR-10 page."))
        test_batch.bin: expected 30730000 bytes, got 12. See the CIFAR-10 page.
    """

    def __init__(self, problem: str, *, path: Path | str | None = None, source: str = "") -> None:
        self.path = None if path is None else Path(path)
        where = "" if path is None else f"{path}: "
        super().__init__(f"{where}{problem}.{f' {source}' if source else ''}")


def require_file(path: Path, source: str) -> Path:
    """Return the path if the file exists."""
    if not path.is_file():
        raise DataError("no such file" if not path.exists() else "not a file", path=path, source=source)
    return path


def find_folder(folder: Path, places: tuple[str, ...], marks: tuple[str, ...], source: str) -> Path:
    """The first of the folder and its subfolders ``places`` that contains one of the names ``marks``."""
    if not folder.is_dir():
        raise DataError("no such folder" if not folder.exists() else "not a folder", path=folder, source=source)
    for place in (folder, *(folder / name for name in places)):
        if any((place / mark).exists() for mark in marks):
            return place
    looked = f", nor does {', '.join(f'{name}/' for name in places)} in it" if places else ""
    raise DataError(f"contains no {' or '.join(marks)}{looked}", path=folder, source=source)
