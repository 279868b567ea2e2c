"""The command ``spectralgrad transfer style``."""

from __future__ import annotations

import argparse
from dataclasses import replace

import torch
from torch import Tensor

from spectralgrad.errors import ArgumentError
from spectralgrad.io.files import path_argument
from spectralgrad.rules import methods, resolve

from ..pictures import Picture, find_picture, read_picture, write_picture
from ..pictures.encoding import require_writable
from ..reporting import pixel_progress, printed_warnings
from .network_options import add_network_arguments, load_networks, numbers
from .stylization import stylize

_COMMAND = "spectralgrad transfer style"
_LEAST = 2**19  # pixels from which a progress bar is shown
_DESCRIPTION = """\
Give an image the style of another one: at several levels of VGG-16, from the deepest to the first, features of CONTENT
are whitened, coloured with mean and covariance of the features of STYLE, and decoded. CONTENT and STYLE are image files
or names of the pictures that come with the lab. Transparency, EXIF data and colour profile of CONTENT are kept. Images
are processed in tiles, so that memory is bounded."""
_EXAMPLES = """\
examples:
  spectralgrad transfer style cat night_cafe --encoder vgg16.safetensors -o cat.png
  spectralgrad transfer style cat harvest --encoder vgg16.safetensors --levels 3,2,1 --strength 1,0.8,0.5 -o cat.png
  spectralgrad transfer style photo.jpg painting.jpg --encoder vgg16.safetensors --size 1024 -o out.png"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``spectralgrad transfer style``."""
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("content", metavar="CONTENT", help="image to stylize: a file, or the name of a picture")
    parser.add_argument("style", metavar="STYLE", help="image whose style to use: a file, or the name of a picture")
    parser.add_argument("-o", "--out", type=path_argument, required=True, metavar="OUT", help="file to write")
    add_network_arguments(parser)
    parser.add_argument(
        "--strength",
        type=numbers(float, "0.6 or 1,0.8,0.5"),
        default=(0.6,),
        metavar="X[,X]",
        help="from 0, content unchanged, to 1; one for all levels, or one for each (default: 0.6)",
    )
    parser.add_argument(
        "--method",
        default="exact",
        metavar="NAME",
        help=f"how the square roots are computed: {', '.join(methods('sqrt'))} (default: exact)",
    )
    parser.add_argument(
        "--size", type=_length, metavar="N", help="first reduce images whose longer side is longer than this"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    resolve(options.method, "sqrt")
    inputs = [find_picture(name) for name in (options.content, options.style)]
    out = require_writable(options.out, inputs)
    encoder, decoders = load_networks(options)
    with printed_warnings(_COMMAND):
        content, style = (read_picture(path, longest=options.size) for path in inputs)
        pixels = [image.pixels[0].numel() for image in (content, style)]
        with pixel_progress("style transfer", 2 * len(decoders) * pixels[0] + pixels[1], least=_LEAST) as progress:
            made = stylize(
                visible(content),
                visible(style),
                encoder,
                decoders,
                options.levels,
                strength=options.strength if len(options.strength) > 1 else options.strength[0],
                method=options.method,
                progress=progress,
            )
        write_picture(out, _stylized(content, made))
    print(f"{out}: {content.size[1]}×{content.size[0]} pixels")


def visible(picture: Picture) -> Tensor:
    """RGB (3, H, W) in which invisible pixels have the mean colour of the others, so that they bring no style.

    Raises:
        ArgumentError: the image is transparent everywhere.

    Example:
        >>> half = torch.tensor([1.0, 0.0]).view(1, 1, 2)
        >>> visible(Picture(torch.tensor([0.25, 1.0]).expand(3, 1, 2), alpha=half))[0]
        tensor([[0.2500, 0.2500]])
    """
    if picture.alpha is None:
        return picture.rgb
    if not picture.alpha.any():
        raise ArgumentError("style transfer: the image is transparent everywhere, so it has no features")
    mean = (picture.rgb * picture.alpha).sum((1, 2)) / picture.alpha.sum()
    return torch.where(picture.alpha > 0, picture.rgb, mean.view(3, 1, 1))


def _stylized(content: Picture, pixels: Tensor) -> Picture:
    """The result with what is kept of the content; the profile of a grey image does not fit a coloured one."""
    profile = content.profile if content.pixels.shape[0] == 3 else None
    if content.alpha is not None:
        pixels = torch.where(content.alpha > 0, pixels, content.rgb)
    return replace(content, pixels=pixels, profile=profile)


def _length(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number ≥ 1, got {text!r}")
    return int(text)
