"""Checkpoints that stay loadable if the process is killed at any moment.

Tensors are saved as safetensors, everything else as JSON; nothing is pickled. The tensors go to a file with a new name.
The JSON file, which contains that name, then atomically replaces the old one: from that moment on the new checkpoint
is the valid one. The old tensor file is removed last.
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
from .records import json_ready
from .saved_state import read_tensor

POINTER = "checkpoint.json"
_TENSOR = "$tensor"
_TENSOR_FILE = re.compile(r"checkpoint-\d{1,18}\.safetensors")  # no path: it must lie beside the JSON file
# Everything that `save` may leave behind, including temporary files of `write_bytes`.
_CHECKPOINT_FILES = re.compile(
    r"checkpoint-(\d+)\.safetensors(\.[0-9a-f]{8}\.part)?|checkpoint\.json\.[0-9a-f]{8}\.part"
)


def _tensors(value: Any, place: str) -> str:
    if not isinstance(value, str) or not _TENSOR_FILE.fullmatch(value):
        raise untrusted_json.InvalidValueError(
            f"{place}: expected a name like checkpoint-1.safetensors, got {reprlib.repr(value)}"
        )
    return value


_CONTENT = untrusted_json.record({"tensors": _tensors, "state": untrusted_json.mapping_of(lambda value, _: value)})


class CheckpointError(SpectralError, ValueError):
    """A checkpoint is damaged, or belongs to another run."""


def save(folder: Path, state: dict[str, Any]) -> None:
    """Save a tree of dicts, lists, tensors and plain values.

    Args:
        folder: where to save; an earlier checkpoint there is replaced.
        state: keys are strings or integers (integers are loaded as strings); NaN is loaded as ``None``.

    Raises:
        OSError: writing failed; the previous checkpoint is still valid.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(Path(folder), {"step": 3, "model": {"weight": torch.ones(2)}})
        ...     load(Path(folder))
        {'step': 3, 'model': {'weight': tensor([1., 1.])}}
    """
    from safetensors.torch import save as serialized

    tensors: dict[str, Tensor] = {}
    scalars = _without_tensors(state, "", tensors)
    name = f"checkpoint-{_generation(folder) + 1}.safetensors"
    write_bytes(folder / name, serialized(tensors), durable=True)
    write_json(folder / POINTER, {"tensors": name, "state": json_ready(scalars)}, durable=True)
    for old in _obsolete_files(folder, name):
        old.unlink(missing_ok=True)


def load(folder: Path) -> dict[str, Any] | None:
    """Load the state last saved in a folder; None if there is none.

    Raises:
        CheckpointError: the checkpoint cannot be read.
    """
    pointer = folder / POINTER
    if not pointer.exists():
        return None
    try:
        content = _CONTENT(untrusted_json.parse(pointer.read_bytes()), POINTER)
        return dict(_with_tensors(content["state"], load_tensors(folder / content["tensors"])))
    except CheckpointError:
        raise
    except (ValueError, KeyError, TypeError, OSError) as problem:
        raise damaged(folder, problem) from None


def damaged(folder: Path | None, problem: Exception) -> CheckpointError:
    """The error to raise for a checkpoint that cannot be used."""
    path = POINTER if folder is None else folder / POINTER
    if isinstance(problem, CheckpointError):
        return problem if str(path) in str(problem) else CheckpointError(f"{path}: {problem}")
    said = str(problem) if isinstance(problem, ValueError) else repr(problem)
    return CheckpointError(f"{path}: not a checkpoint of spectralgrad: {said[:300]}")


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Load the tensors of a safetensors file.

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
    """Load the weights of a network from the folder of a run, its checkpoint.json, or any safetensors file.

    Raises:
        CheckpointError: the source holds no weights.
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
        return dict(untrusted_json.record({"model": untrusted_json.mapping_of(read_tensor)})(state, POINTER)["model"])
    except ValueError as problem:
        raise damaged(path, problem) from None


def _generation(folder: Path) -> int:
    numbers = [found[1] for path in folder.glob("checkpoint*") if (found := _CHECKPOINT_FILES.fullmatch(path.name))]
    return max((int(number) for number in numbers if number), default=0)


def _obsolete_files(folder: Path, current: str) -> Iterator[Path]:
    """Older tensor files and temporary files of an interrupted save; other files are left alone."""
    for path in folder.glob("checkpoint*"):
        if path.name != current and _CHECKPOINT_FILES.fullmatch(path.name):
            yield path


def _without_tensors(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Replace each tensor in the tree by a reference to its path, and collect the tensors in ``tensors``."""
    if isinstance(value, Tensor):
        tensors[path] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: path}
    if isinstance(value, dict):
        return {
            str(key): _without_tensors(item, f"{path}.{key}" if path else str(key), tensors)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_tensors(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]
    return value


def _with_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if set(value) == {_TENSOR}:
            return tensors[value[_TENSOR]]
        return {key: _with_tensors(item, tensors) for key, item in value.items()}
    return [_with_tensors(item, tensors) for item in value] if isinstance(value, list) else value
