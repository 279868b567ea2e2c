"""Read the encoder's weights from a safetensors file, and recognise VGG-16's own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from spectralgrad.errors import SpectralError

from ...training.storage.checkpoints import load_tensors
from .vgg_encoder import BLOCKS, Encoder, convolutions

# SHA-256 over the tensors of VGG-16 trained on ImageNet, as torchvision publishes them (IMAGENET1K_V1).
VGG16 = "f952adf0b362db5ed6be6449d1ea5898285643ff99f30f14b473f9a440e85318"
HOW_TO_GET = (
    "Pass the 13 convolutions of VGG-16 as a safetensors file, for example: "
    "safetensors.torch.save_file(torchvision.models.vgg16(weights='IMAGENET1K_V1').features.state_dict(), FILE)"
)


class EncoderError(SpectralError, ValueError):
    """The file of the encoder is missing, damaged or holds other weights."""


def load_encoder(path: str | Path, *, any_weights: bool = False) -> Encoder:
    """Read an encoder whose weights do not require a gradient.

    Args:
        path: safetensors file with the names of torchvision's ``vgg16().features``: ``0.weight``, ``0.bias``,
            ``2.weight`` and so on for 13 convolutions.
        any_weights: accept other weights of this layout too, also with other widths.

    Raises:
        EncoderError: the file is missing or damaged, has other names or shapes, or other weights and not
            ``any_weights``.

    Example:
        >>> try:
        ...     load_encoder("vgg16.safetensors")
        ... except EncoderError as problem:
        ...     print(str(problem)[:32])
        vgg16.safetensors: no such file.
    """
    path = Path(path)
    if not path.is_file():
        raise EncoderError(f"{path}: {'not a file' if path.exists() else 'no such file'}. {HOW_TO_GET}")
    tensors = load_tensors(path)
    widths = _widths(tensors, path)
    digest = digest_of(tensors)
    if digest != VGG16 and not any_weights:
        raise EncoderError(
            f"{path}: has the layout of VGG-16 but other weights than those trained on ImageNet (SHA-256 "
            f"{digest[:12]}…, expected {VGG16[:12]}…). Get the file again, or pass --any-encoder to use these weights"
        )
    return _encoder(tensors, widths, digest)


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and values, in the order of the names, whatever the order in a file.

    Example:
        >>> a, b = torch.zeros(2), torch.ones(3)
        >>> digest_of({"a": a, "b": b}) == digest_of({"b": b, "a": a}) != digest_of({"a": a, "b": a})
        True
    """
    content = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        content.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def convolution_names() -> list[list[str]]:
    """The names of the convolutions in torchvision's ``vgg16().features``, block by block.

    Example:
        >>> convolution_names()
        [['0', '2'], ['5', '7'], ['10', '12', '14'], ['17', '19', '21'], ['24', '26', '28']]
    """
    names, index = [], 0
    for count in BLOCKS:
        names.append([str(index + 2 * i) for i in range(count)])  # a ReLU follows each convolution
        index += 2 * count + 1  # and a pooling layer each block
    return names


def _widths(tensors: Mapping[str, Tensor], path: Path) -> list[int]:
    """The widths of the five blocks.

    Raises:
        EncoderError: names, types or shapes do not fit such a network.
    """
    expected = {f"{name}.{kind}" for block in convolution_names() for name in block for kind in ("weight", "bias")}
    if set(tensors) != expected:
        odd = sorted(set(tensors) ^ expected)[0]
        what = f"has {odd!r}, which is not one of them" if odd in tensors else f"lacks {odd!r}"
        raise EncoderError(f"{path}: expected the 26 tensors 0.weight, 0.bias, …, 28.bias; it {what}. {HOW_TO_GET}")
    channels, widths = 3, []
    for block in convolution_names():
        widths.append(len(tensors[f"{block[0]}.bias"].reshape(-1)))
        for name in block:
            _check_convolution(tensors, name, channels, widths[-1], path)
            channels = widths[-1]
    return widths


def _check_convolution(tensors: Mapping[str, Tensor], name: str, inputs: int, outputs: int, path: Path) -> None:
    for kind, shape in (("weight", (outputs, inputs, 3, 3)), ("bias", (outputs,))):
        tensor = tensors[f"{name}.{kind}"]
        if tuple(tensor.shape) != shape or not tensor.is_floating_point():
            raise EncoderError(
                f"{path}: expected {name}.{kind} of floating-point numbers {shape}, "
                f"got {tensor.dtype} {tuple(tensor.shape)}. {HOW_TO_GET}"
            )
        if not tensor.isfinite().all():
            raise EncoderError(f"{path}: {name}.{kind} contains NaN or infinity. Get the file again")


def _encoder(tensors: Mapping[str, Tensor], widths: list[int], digest: str) -> Encoder:
    encoder = Encoder(widths)
    for block, names in zip(convolutions(encoder.blocks), convolution_names(), strict=True):
        for convolution, name in zip(block, names, strict=False):
            convolution.load_state_dict({kind: tensors[f"{name}.{kind}"] for kind in ("weight", "bias")})
    encoder.digest = digest
    return encoder.requires_grad_(False).eval()
