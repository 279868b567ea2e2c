"""The pictures that ship with the lab, known by name."""

from __future__ import annotations

from pathlib import Path

from .errors import PictureError

_FOLDER = Path(__file__).parent / "art"
_PREFIXES = ("photo_", "van_gogh_")


def art() -> dict[str, Path]:
    """Return the pictures by name, photographs first.

    Example:
        >>> list(art())[:6]
        ['astronaut', 'cat', 'coffee', 'rocket', 'asylum_vestibule', 'cafe_terrace']
    """
    files = [path for prefix in _PREFIXES for path in sorted(_FOLDER.glob(f"{prefix}*"))]
    return {picture_name(path): path for path in files}


def art_path(name: str) -> Path:
    """Return the file of a picture that ships with the lab.

    Raises:
        PictureError: there is no picture of this name; the message lists all.

    Example:
        >>> art_path("night_cafe").name
        'van_gogh_night_cafe.webp'
    """
    pictures = art()
    if name not in pictures:
        raise PictureError(name, f"no such file, nor a picture of the lab; those are {', '.join(pictures)}")
    return pictures[name]


def find_picture(name: str | Path) -> Path:
    """Return the file of this name or, if there is none, the picture of the lab with this name.

    Raises:
        PictureError: there is neither.

    Example:
        >>> find_picture("cat").name
        'photo_cat.png'
    """
    path = Path(name)
    is_bare = path.name == str(name) and not path.suffix
    if path.is_file() or not is_bare or (path.is_dir() and str(name) not in art()):
        return path  # a folder is refused by the reader
    return art_path(str(name))


def picture_name(path: Path) -> str:
    """Return the name of a picture of the lab, or of another file without its suffix.

    Example:
        >>> picture_name(art_path("cat")), picture_name(Path("photo_of_me.jpg"))
        ('cat', 'photo_of_me')
    """
    own = [path.stem.removeprefix(prefix) for prefix in _PREFIXES if path.name.startswith(prefix)]
    return own[0] if own and path.parent == _FOLDER else path.stem
