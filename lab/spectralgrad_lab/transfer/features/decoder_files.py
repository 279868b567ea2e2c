"""Decoders as safetensors files, which state their level and their encoder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spectralgrad.errors import SpectralError
from spectralgrad.io.files import write_bytes

from ... import untrusted_json
from ...training.storage.checkpoints import CheckpointError, load_tensors
from .mirror_decoder import Decoder
from .vgg_encoder import Encoder, check_level

SHIPPED = Path(__file__).parents[1] / "decoders"
_WIDEST = 1024
_ENTRY = "decoder"  # one entry of JSON: safetensors writes several in any order, and the same decoder is the same file
_METADATA = untrusted_json.record(
    {
        "level": untrusted_json.integer(1, 5),
        "encoder": untrusted_json.text,
        "inputs": untrusted_json.integer(1, _WIDEST),
        "widths": untrusted_json.list_of(untrusted_json.integer(1, _WIDEST)),
    }
)


class DecoderError(SpectralError, ValueError):
    """The file of a decoder is missing, damaged, or belongs to another encoder."""


def decoder_file(folder: Path, level: int) -> Path:
    """The file of the decoder of a level.

    Example:
        >>> decoder_file(Path("decoders"), 3).name
        'decoder-3.safetensors'
    """
    return folder / f"decoder-{level}.safetensors"


def run_folder(folder: Path, level: int) -> Path:
    """Where the run of a level is by default, below the folder for all levels.

    Example:
        >>> run_folder(Path("runs/decoders"), 3).as_posix()
        'runs/decoders/level-3'
    """
    return folder / f"level-{level}"


def save_decoder(path: Path, decoder: Decoder, encoder_digest: str) -> None:
    """Write a decoder in half precision, atomically.

    Args:
        path: the file.
        decoder: to write.
        encoder_digest: of the encoder it was trained for.

    Raises:
        DecoderError: a weight is not finite in half precision.
        OSError: the file cannot be written.
    """
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().half().contiguous() for name, tensor in decoder.state_dict().items()}
    if not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise DecoderError(f"{path}: a weight of the decoder is not finite in half precision")
    described = {
        "level": decoder.level,
        "encoder": encoder_digest,
        "inputs": decoder.inputs,
        "widths": list(decoder.widths),
    }
    write_bytes(path, save(tensors, {_ENTRY: json.dumps(described)}))


def load_decoder(path: str | Path, encoder: Encoder) -> Decoder:
    """Read a decoder whose weights do not require a gradient.

    Args:
        path: file written by :func:`save_decoder`.
        encoder: for which it must have been trained.

    Raises:
        DecoderError: the file is missing or damaged, or was trained for other weights of the encoder.

    Example:
        >>> import tempfile
        >>> path, encoder = Path(tempfile.mkdtemp()) / "decoder-1.safetensors", Encoder((4, 4, 8, 8, 8))
        >>> save_decoder(path, Decoder(1, inputs=4), encoder.digest)
        >>> load_decoder(path, encoder).level
        1
    """
    path = Path(path)
    try:
        tensors = load_tensors(path)
        decoder = _empty_decoder(_metadata(path), encoder)
        decoder.load_state_dict({name: _checked(name, tensor) for name, tensor in tensors.items()}, assign=True)
    except CheckpointError as problem:
        raise DecoderError(str(problem)) from None
    except (ValueError, RuntimeError) as problem:  # RuntimeError: load_state_dict lists names and shapes in many lines
        text = " ".join(str(problem).split())
        raise DecoderError(f"{path}: not a decoder for this encoder: {text[:300]}") from None
    return decoder.requires_grad_(False).eval()


def load_decoders(folder: str | Path, encoder: Encoder, levels: Iterable[int]) -> dict[int, Decoder]:
    """Read the decoders of several levels from a folder, or from the runs ``level-1`` and so on in it.

    A level that the folder lacks is taken from those that come with the lab, if they belong to this encoder.

    Raises:
        DecoderError: one is missing or cannot be used; the message says how to train it.
    """
    found = {}
    for level in levels:
        check_level(level)
        places = [decoder_file(place, level) for place in (Path(folder), run_folder(Path(folder), level))]
        if _belongs(decoder_file(SHIPPED, level), encoder):
            places.append(decoder_file(SHIPPED, level))
        path = next((place for place in places if place.is_file()), places[0])
        if not path.is_file():
            raise DecoderError(
                f"{path}: no such file. Train it with: spectralgrad transfer train-decoder --level {level} "
                f"--images DIR --encoder FILE; then pass --decoders runs/decoders"
            )
        found[level] = load_decoder(path, encoder)
        if found[level].level != level:
            raise DecoderError(f"{path}: expected a decoder of level {level}, got one of level {found[level].level}")
    return found


def _belongs(path: Path, encoder: Encoder) -> bool:
    return path.is_file() and bool(_metadata(path)["encoder"] == encoder.digest)


def _metadata(path: Path) -> dict[str, Any]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        found = (file.metadata() or {}).get(_ENTRY, "{}")
    return dict(_METADATA(untrusted_json.parse(found.encode()), _ENTRY))


def _empty_decoder(known: dict[str, Any], encoder: Encoder) -> Decoder:
    """A decoder without memory for its weights, as the metadata of a file describe it."""
    if known["encoder"] != encoder.digest:
        raise DecoderError(
            f"it was trained for the encoder {known['encoder'][:12] or 'without a file'}…, not {encoder.digest[:12]}…"
        )
    with torch.device("meta"):
        return Decoder(known["level"], known["inputs"], known["widths"])


def _checked(name: str, tensor: Tensor) -> Tensor:
    tensor = tensor.float()
    if not tensor.isfinite().all():
        raise DecoderError(f"{name} contains NaN or infinity")
    return tensor
