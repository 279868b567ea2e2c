"""The command ``spectralgrad transfer color``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spectralgrad.errors import ArgumentError
from spectralgrad.io.files import path_argument
from spectralgrad.rules import methods, resolve

from ..pictures.decoding import MAX_PIXELS, read_samples
from ..pictures.encoding import is_writable_format, require_writable, write_samples
from ..pictures.errors import PictureError
from ..pictures.samples import Samples
from ..pictures.shipped import art, find_picture, picture_name
from ..reporting import pixel_progress, printed_warnings
from .layer import SPACES
from .recoloring import recolor, style_colors

_DESCRIPTION = """\
Give an image the mean and covariance of the colours of another one. CONTENT and STYLE are image files or names of the
pictures that come with the lab, such as `spectralgrad transfer color cat night_cafe`; --list shows the names.
Transparency, EXIF data, the colour profile and 16 bits per sample are kept."""


class _List(argparse.Action):
    """Print the names of the lab's pictures and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print("\n".join(art()))
        parser.exit()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``spectralgrad transfer color``."""
    parser.description = _DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("content", metavar="CONTENT", help="image to recolour: a file, or the name of a picture")
    parser.add_argument("style", metavar="STYLE", help="image whose colours to take: a file, or the name of a picture")
    parser.add_argument(
        "-o",
        "--out",
        type=path_argument,
        metavar="FILE",
        help="file to write; its suffix chooses the format (default: CONTENT_STYLE in the working directory, in the "
        "format of CONTENT)",
    )
    parser.add_argument(
        "--strength", type=float, default=1.0, metavar="X", help="from 0, content unchanged, to 1 (default: 1)"
    )
    parser.add_argument(
        "--space",
        choices=sorted(SPACES, reverse=True),
        default="rgb",
        help="colour space of the statistics: rgb, the values in the file, or lab, CIELAB (default: rgb)",
    )
    parser.add_argument(
        "--method",
        default="exact",
        metavar="NAME",
        help=f"how the square roots are computed: {', '.join(methods('sqrt'))} (default: exact); the picture differs "
        "only for those that approximate the root by an iteration",
    )
    parser.add_argument(
        "--max-pixels",
        type=int,
        default=MAX_PIXELS,
        metavar="N",
        help="refuse images with more pixels, which may be decompression bombs (default: %(default)s)",
    )
    parser.add_argument("--list", action=_List, nargs=0, help="list the pictures that come with the lab, and exit")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    if not 0 <= options.strength <= 1:
        raise ArgumentError(f"--strength: expected a number from 0 to 1, got {options.strength}")
    resolve(options.method, "sqrt")
    content, style = find_picture(options.content), find_picture(options.style)
    out = require_writable(options.out or _default_output(content, style), (content, style))
    with printed_warnings("spectralgrad transfer"):
        samples, clipped = _recolored(content, style, options)
        write_samples(out, samples)
    height, width = samples.values.shape[:2]
    print(f"{out}: {width}×{height} pixels, {100 * clipped:.2g} % of the samples clipped")


def _recolored(content: Path, style: Path, options: argparse.Namespace) -> tuple[Samples, float]:
    """Read both images and transfer the colours; errors about an image name its file."""
    read = read_samples(style, max_pixels=options.max_pixels)
    with _naming(style), pixel_progress("style", read.pixels) as progress:
        colors = style_colors(read, options.space, progress)
    del read  # before the content is read, so that only one of them is in memory
    read = read_samples(content, max_pixels=options.max_pixels)
    with _naming(content), pixel_progress("content", 2 * read.pixels) as progress:
        return recolor(read, colors, strength=options.strength, method=options.method, progress=progress)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except ArgumentError as problem:
        raise PictureError(path, str(problem)) from problem


def _default_output(content: Path, style: Path) -> Path:
    suffix = content.suffix if is_writable_format(content) else ".png"
    return Path(f"{picture_name(content)}_{picture_name(style)}{suffix}")
