"""Checkpoints that a kill at any moment leaves loadable: tensors as safetensors, everything else as JSON, no pickle.

The tensors go to a file of a new name. The JSON, which says that name, is then moved over the old one: that is the
moment the new checkpoint counts. Only afterwards is the old file of tensors removed.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from spectralgrad.errors import SpectralError
from spectralgrad.io.files import write_bytes, write_json

from .. import untrusted_json
from .records import packed
from .saved_state import tensor

POINTER = "checkpoint.json"
_TENSOR = "$tensor"
_NAME = re.compile(r"checkpoint-\d{1,18}\.safetensors")  # beside the pointer, and nowhere else
_OURS = re.compile(r"checkpoint-(\d+)\.safetensors(\.[0-9a-f]{8}\.part)?|checkpoint\.json\.[0-9a-f]{8}\.part")


def _tensors(value: Any, place: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise untrusted_json.RowError(
            f"{place}: expected a name like checkpoint-1.safetensors, got {reprlib.repr(value)}"
        )
    return value


_CONTENT = untrusted_json.record({"tensors": _tensors, "state": untrusted_json.table(lambda value, _: value)})


class CheckpointError(SpectralError, ValueError):
    """A checkpoint is damaged, or does not fit the run."""


def save(folder: Path, state: dict[str, Any]) -> None:
    """Write a tree of dicts, lists, tensors and plain values.

    Args:
        folder: where; the previous checkpoint there is replaced.
        state: keys are strings or whole numbers (which come back as strings); ``None`` stands for NaN afterwards.

    Raises:
        OSError: it could not be written; the previous checkpoint still is the one that counts.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(Path(folder), {"step": 3, "model": {"weight": torch.ones(2)}})
        ...     load(Path(folder))
        {'step': 3, 'model': {'weight': tensor([1., 1.])}}
    """
    from safetensors.torch import save as serialized

    tensors: dict[str, Tensor] = {}
    scalars = _parted(state, "", tensors)
    name = f"checkpoint-{_generation(folder) + 1}.safetensors"
    write_bytes(folder / name, serialized(tensors), durable=True)
    write_json(folder / POINTER, {"tensors": name, "state": packed(scalars)}, durable=True)
    for old in _leftovers(folder, name):
        old.unlink(missing_ok=True)


def load(folder: Path) -> dict[str, Any] | None:
    """The state last saved in a folder; None if there is none.

    Raises:
        CheckpointError: there is one, but it cannot be read.
    """
    pointer = folder / POINTER
    if not pointer.exists():
        return None
    try:
        content = _CONTENT(untrusted_json.parsed(pointer.read_bytes()), POINTER)
        return dict(_joined(content["state"], load_tensors(folder / content["tensors"])))
    except CheckpointError:
        raise
    except (ValueError, KeyError, TypeError, OSError) as problem:
        raise damaged(folder, problem) from None


def damaged(folder: Path | None, problem: Exception) -> CheckpointError:
    """The error of a checkpoint that cannot be used."""
    if isinstance(problem, CheckpointError):
        return problem
    said = str(problem) if isinstance(problem, ValueError) else repr(problem)
    path = POINTER if folder is None else folder / POINTER
    return CheckpointError(f"{path}: not a checkpoint of spectralgrad: {said[:300]}")


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(path))
    except (SafetensorError, OSError) as problem:
        raise CheckpointError(f"{path}: expected a safetensors file: {problem}") from None


def load_weights(source: str | Path) -> dict[str, Tensor]:
    """The network's tensors from the folder of a run, its checkpoint.json, or any safetensors file.

    Raises:
        CheckpointError: there are none.
    """
    path = Path(source)
    if path.suffix == ".safetensors":
        tensors = load_tensors(path)
        inner = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
        return inner or tensors
    state = load(path.parent if path.name == POINTER else path)
    if state is None:
        raise CheckpointError(f"{path}: expected the folder of a run, which has {POINTER}, or a .safetensors file")
    try:
        return dict(untrusted_json.record({"model": untrusted_json.table(tensor)})(state, POINTER)["model"])
    except ValueError as problem:
        raise damaged(path, problem) from None


def _generation(folder: Path) -> int:
    numbers = [found[1] for path in folder.glob("checkpoint*") if (found := _OURS.fullmatch(path.name))]
    return max((int(number) for number in numbers if number), default=0)


def _leftovers(folder: Path, current: str) -> Iterator[Path]:
    """Older tensors, and what a kill left half written; nothing that somebody else put there."""
    for path in folder.glob("checkpoint*"):
        if path.name != current and _OURS.fullmatch(path.name):
            yield path


def _parted(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """The tree with a reference in place of each tensor, which goes to ``tensors`` under its path."""
    if isinstance(value, Tensor):
        tensors[path] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: path}
    if isinstance(value, dict):
        return {str(key): _parted(item, f"{path}.{key}" if path else str(key), tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_parted(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]
    return value


def _joined(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if set(value) == {_TENSOR}:
            return tensors[value[_TENSOR]]
        return {key: _joined(item, tensors) for key, item in value.items()}
    return [_joined(item, tensors) for item in value] if isinstance(value, list) else value
