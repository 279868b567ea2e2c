"""The error of every reader: which file, what is wrong, where to get it."""

from __future__ import annotations

from pathlib import Path

from spectralgrad.errors import SpectralError


class DataError(SpectralError, ValueError):
    """Data are missing, damaged or of another kind than expected. ``path`` says where, if it is a file or a folder.

    Args:
        problem: what is wrong.
        path: the file or folder.
        source: where to get the data, a sentence.

    Example:
        >>> print(DataError("expected 30730000 bytes, got 12", path="test_batch.bin", source="See the CIFAR-10 page."))
        test_batch.bin: expected 30730000 bytes, got 12. See the CIFAR-10 page.
    """

    def __init__(self, problem: str, *, path: Path | str | None = None, source: str = "") -> None:
        self.path = None if path is None else Path(path)
        where = "" if path is None else f"{path}: "
        super().__init__(f"{where}{problem}.{f' {source}' if source else ''}")


def require_file(path: Path, source: str) -> Path:
    """The path, if a file is there."""
    if not path.is_file():
        raise DataError("no such file" if not path.exists() else "not a file", path=path, source=source)
    return path


def found(folder: Path, places: tuple[str, ...], marks: tuple[str, ...], source: str) -> Path:
    """The first of the folder and its ``places`` in which one of the files or folders ``marks`` is."""
    if not folder.is_dir():
        raise DataError("no such folder" if not folder.exists() else "not a folder", path=folder, source=source)
    for place in (folder, *(folder / name for name in places)):
        if any((place / mark).exists() for mark in marks):
            return place
    looked = f", nor does {', '.join(f'{name}/' for name in places)} in it" if places else ""
    raise DataError(f"holds no {' or '.join(marks)}{looked}", path=folder, source=source)
