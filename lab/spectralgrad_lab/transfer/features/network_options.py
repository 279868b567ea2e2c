"""The flags that choose encoder, decoders and levels of style transfer."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from spectralgrad.io.files import path_argument

from .decoder_files import SHIPPED, load_decoders
from .encoder_file import HOW_TO_GET, EncoderError, load_encoder
from .mirror_decoder import Decoder
from .vgg_encoder import Encoder

T = TypeVar("T", int, float)


def add_network_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--encoder``, ``--any-encoder``, ``--decoders`` and ``--levels``."""
    parser.add_argument("--encoder", metavar="FILE", help="safetensors file with the convolutions of VGG-16")
    parser.add_argument(
        "--any-encoder", action="store_true", help="accept an encoder with other weights than those trained on ImageNet"
    )
    parser.add_argument(
        "--decoders",
        type=path_argument,
        default=SHIPPED,
        metavar="DIR",
        help="folder with decoders from train-decoder (default: those that come with the lab)",
    )
    parser.add_argument(
        "--levels",
        type=numbers(int, "3,2,1"),
        default=(3, 2, 1),
        metavar="N[,N]",
        help="levels from 1 to 5 (default: 3,2,1)",
    )


def load_networks(options: argparse.Namespace) -> tuple[Encoder, dict[int, Decoder]]:
    """The networks that the flags name.

    Raises:
        EncoderError, DecoderError: no encoder is given, or a file is missing, damaged or does not fit.
    """
    if not options.encoder:
        raise EncoderError(f"--encoder is required. {HOW_TO_GET}")
    encoder = load_encoder(options.encoder, any_weights=options.any_encoder)
    return encoder, load_decoders(options.decoders, encoder, options.levels)


def numbers(kind: Callable[[str], T], example: str) -> Callable[[str], tuple[T, ...]]:
    """A reader of numbers that are separated by commas.

    Args:
        kind: reads one of them.
        example: for the message if that fails.

    Example:
        >>> numbers(int, "3,2,1")("2,1")
        (2, 1)
    """

    def read(text: str) -> tuple[T, ...]:
        try:
            return tuple(kind(part) for part in text.split(","))
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected numbers such as {example}, got {text!r}") from None

    return read
