"""The command ``spectralgrad transfer apply``."""

from __future__ import annotations

import argparse

from spectralgrad.io.files import path_argument

from ..pictures import find_picture, read_picture, write_picture
from ..pictures.encoding import require_writable
from ..reporting import printed_warnings
from .networks import DOMAINS
from .translator import Translator

_DESCRIPTION = """\
Translate a picture with the networks of a run of `spectralgrad transfer train`: it keeps its content and gets the style
of a reference picture. Pictures may have any size; transparency, EXIF data and colour profile are kept. Memory grows
with the picture: about 2 GB per megapixel for a network of the paper's width; --longest reduces large ones."""
_EXAMPLE = """\
example:
  spectralgrad transfer apply runs/translation photo.jpg --style painting.jpg -o painted.png"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``spectralgrad transfer apply``."""
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", type=path_argument, metavar="RUN", help="folder of the run")
    parser.add_argument("content", metavar="CONTENT", help="picture to translate, of the domain that --to is not")
    parser.add_argument("--style", required=True, metavar="REFERENCE", help="picture whose style to use")
    parser.add_argument("-o", "--out", type=path_argument, required=True, metavar="OUT", help="file to write")
    parser.add_argument("--to", choices=DOMAINS, default="b", help="domain of the result (default: b)")
    parser.add_argument("--longest", type=_length, metavar="N", help="first reduce longer pictures to this length")
    parser.set_defaults(run=_run)


def _length(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number ≥ 1, got {text!r}")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    inputs = [find_picture(name) for name in (options.content, options.style)]
    out = require_writable(options.out, inputs)
    translator = Translator.load(options.folder)
    with printed_warnings("spectralgrad transfer apply"):
        content, style = (read_picture(path, longest=options.longest) for path in inputs)
        made = content.with_pixels(translator(content.rgb, style.rgb, options.to))
        write_picture(out, made)
    print(f"{out}: {made.size[1]}×{made.size[0]} pixels")
    return 0
