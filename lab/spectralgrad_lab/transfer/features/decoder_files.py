"""Decoders as safetensors files, which say of which level and for which encoder they are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spectralgrad.errors import SpectralError
from spectralgrad.io.files import write_bytes

from ... import untrusted_json
from ...training.checkpoints import CheckpointError, load_tensors
from .mirror_decoder import Decoder
from .vgg_encoder import Encoder

SHIPPED = Path(__file__).parents[1] / "decoders"
_WIDEST = 1024
_METADATA = untrusted_json.record(
    dict.fromkeys(("level", "encoder", "inputs", "widths"), untrusted_json.text)
)  # safetensors stores text only


class DecoderError(SpectralError, ValueError):
    """The file of a decoder is missing, damaged, or belongs to another encoder."""


def decoder_file(folder: Path, level: int) -> Path:
    """The file of the decoder of a level.

    Example:
        >>> decoder_file(Path("decoders"), 3).name
        'decoder-3.safetensors'
    """
    return folder / f"decoder-{level}.safetensors"


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
    metadata = {
        "level": str(decoder.level),
        "encoder": encoder_digest,
        "inputs": str(decoder.inputs),
        "widths": ",".join(map(str, decoder.widths)),
    }
    write_bytes(path, save(tensors, metadata))


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
        decoder = _empty_decoder(_METADATA(_metadata(path), "metadata"), encoder)
        decoder.load_state_dict({name: _checked(name, tensor) for name, tensor in tensors.items()}, assign=True)
    except CheckpointError as problem:
        raise DecoderError(str(problem)) from None
    except (ValueError, RuntimeError) as problem:  # RuntimeError: load_state_dict lists names and shapes in many lines
        text = " ".join(str(problem).split())
        raise DecoderError(f"{path}: not a decoder for this encoder: {text[:300]}") from None
    return decoder.requires_grad_(False).eval()


def load_decoders(folder: str | Path, encoder: Encoder, levels: Iterable[int]) -> dict[int, Decoder]:
    """Read the decoders of several levels from a folder.

    Raises:
        DecoderError: one is missing or cannot be used; the message says how to train it.
    """
    found = {}
    for level in levels:
        path = decoder_file(Path(folder), level)
        if not path.is_file():
            raise DecoderError(
                f"{path}: no such file. Train a decoder of level {level} with: spectralgrad transfer train-decoder "
                f"--level {level} --images DIR --encoder FILE --out DIR; then pass --decoders DIR"
            )
        found[level] = load_decoder(path, encoder)
        if found[level].level != level:
            raise DecoderError(f"{path}: expected a decoder of level {level}, got one of level {found[level].level}")
    return found


def _metadata(path: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


def _empty_decoder(known: dict[str, Any], encoder: Encoder) -> Decoder:
    """A decoder without memory for its weights, as the metadata of a file describe it."""
    if known["encoder"] != encoder.digest:
        raise DecoderError(
            f"it was trained for the encoder {known['encoder'][:12] or 'without a file'}…, not {encoder.digest[:12]}…"
        )
    level, inputs, *widths = map(int, [known["level"], known["inputs"], *known["widths"].split(",")])
    if max(inputs, *widths) > _WIDEST:
        raise DecoderError(f"expected at most {_WIDEST} channels, got {max(inputs, *widths)}")
    with torch.device("meta"):
        return Decoder(level, inputs, widths)


def _checked(name: str, tensor: Tensor) -> Tensor:
    tensor = tensor.float()
    if not tensor.isfinite().all():
        raise DecoderError(f"{name} contains NaN or infinity")
    return tensor
