"""Checkpoints that stay loadable if the process is killed at any moment.

Tensors are saved as safetensors, everything else as JSON; nothing is pickled. The tensors go to a file with a new name.
The JSON file, which contains that name, then atomically replaces the old one: from that moment on the new checkpoint
is the valid one. Both files have a SHA-256, which is checked before anything is used. The checkpoint before the last
is kept under another name, as a way out if the last one is damaged; older files are removed.
"""

from __future__ import annotations

import hashlib
import re
import reprlib
import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from spectralgrad.errors import SpectralError
from spectralgrad.io.files import write_bytes

from ... import untrusted_json
from .checksums import digest, sealed, unsealed, verify_written
from .records import json_ready
from .saved_state import read_tensor

POINTER = "checkpoint.json"
PREVIOUS = "checkpoint-previous.json"
_TENSOR = "$tensor"
_TENSOR_FILE = re.compile(r"checkpoint-\d{1,18}\.safetensors")  # no path: it must lie beside the JSON file
# Everything that `save` may leave behind, including temporary files of `write_bytes`.
_CHECKPOINT_FILES = re.compile(
    r"checkpoint-(\d+)\.safetensors(\.[0-9a-f]{8}\.part)?|checkpoint(-previous)?\.json\.[0-9a-f]{8}\.part"
)
_TENSORS_OF = re.compile(rb'"tensors": "(checkpoint-\d{1,18}\.safetensors)"')
_UNSEALED = b'{\n "tensors": '  # the beginning of files that versions without checksums wrote


def _tensors(value: Any, place: str) -> str:
    if not isinstance(value, str) or not _TENSOR_FILE.fullmatch(value):
        raise untrusted_json.InvalidValueError(
            f"{place}: expected a name like checkpoint-1.safetensors, got {reprlib.repr(value)}"
        )
    return value


_CONTENT = untrusted_json.record(
    {"tensors": _tensors, "state": untrusted_json.mapping_of(lambda value, _: value)},
    {"tensors sha256": untrusted_json.text},
)


class CheckpointError(SpectralError, ValueError):
    """A checkpoint is damaged, or belongs to another run."""


def save(folder: Path, state: dict[str, Any]) -> None:
    """Save a tree of dicts, lists, tensors and plain values.

    Args:
        folder: where to save. The last checkpoint there becomes the previous one, and what was the previous is removed.
        state: keys are strings or integers (integers are loaded as strings); NaN is loaded as ``None``.

    Raises:
        OSError: writing failed, or the file reads back differently; the last checkpoint is still valid.

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
    name, data = f"checkpoint-{_generation(folder) + 1}.safetensors", serialized(tensors)
    checksum = hashlib.sha256(data).hexdigest()
    write_bytes(folder / name, data, durable=True)
    verify_written(folder / name, checksum)
    last = (folder / POINTER).read_bytes() if (folder / POINTER).exists() else b""
    if last:
        write_bytes(folder / PREVIOUS, last, durable=True)
    content = {"tensors": name, "tensors sha256": checksum, "state": json_ready(scalars)}
    write_bytes(folder / POINTER, sealed(content), durable=True)
    kept = _TENSORS_OF.search(last)
    for old in _obsolete_files(folder, {name, kept[1].decode() if kept else ""}):
        old.unlink(missing_ok=True)


def load(folder: Path) -> dict[str, Any] | None:
    """Load the state last saved in a folder; None if there is none.

    A checkpoint of a version that wrote no checksums is loaded with a warning.

    Raises:
        CheckpointError: the checkpoint is damaged; the message names the file, and says how to continue from the
            checkpoint before it if that one is intact.
    """
    if not (folder / POINTER).exists():
        return None
    try:
        return _read(folder, POINTER)
    except CheckpointError as problem:
        raise CheckpointError(f"{problem}{_way_out(folder)}") from None


def _read(folder: Path, pointer: str) -> dict[str, Any]:
    """The state to which a JSON file points.

    Raises:
        CheckpointError: the file, or the file of tensors that it names, is damaged.
    """
    try:
        content = _CONTENT(untrusted_json.parse(_checked(folder / pointer)), pointer)
        tensors = folder / content["tensors"]
        _require_digest(tensors, content.get("tensors sha256"), pointer)
        return dict(_with_tensors(content["state"], load_tensors(tensors)))
    except CheckpointError:
        raise
    except (ValueError, KeyError, TypeError, OSError) as problem:
        raise damaged(folder, problem, pointer) from None


def _checked(path: Path) -> bytes:
    raw = path.read_bytes()
    if raw.startswith(_UNSEALED):
        warnings.warn(f"{path} is of a version that wrote no checksums: damage would not be noticed", stacklevel=5)
        return raw
    return unsealed(raw)


def _require_digest(path: Path, wanted: str | None, pointer: str) -> None:
    try:
        found = wanted and digest(path)
    except OSError as problem:
        raise CheckpointError(f"{path}: {problem.strerror}") from None
    if found != wanted:
        raise CheckpointError(f"{path}: the file is damaged: its SHA-256 is not the one in {pointer}")


def _way_out(folder: Path) -> str:
    """What to do if the last checkpoint is damaged."""
    try:
        _read(folder, PREVIOUS)
    except CheckpointError:
        return ""
    move = shlex.join(["mv", str(folder / PREVIOUS), str(folder / POINTER)])
    return f"\nThe checkpoint before it is intact. To continue from that one: {move}"


def damaged(folder: Path | None, problem: Exception, pointer: str = POINTER) -> CheckpointError:
    """The error to raise for a checkpoint that cannot be used."""
    path = pointer if folder is None else folder / pointer
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


def _obsolete_files(folder: Path, kept: set[str]) -> Iterator[Path]:
    """Older tensor files and temporary files of an interrupted save; other files are left alone."""
    for path in folder.glob("checkpoint*"):
        if path.name not in kept and _CHECKPOINT_FILES.fullmatch(path.name):
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
