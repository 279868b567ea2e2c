"""Files written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def require_folder(target: Path | None) -> None:
    """Refuse a target that could not be written after minutes of work."""
    if target is not None and not target.absolute().parent.is_dir():
        raise FileNotFoundError(f"no folder to write {target} into: {target.parent}")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write beside the target and move into place, so that a file is there whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, allow_nan=False)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
