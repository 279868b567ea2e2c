"""The command ``spectralgrad transfer gallery``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from spectralgrad.errors import ArgumentError
from spectralgrad.io.files import path_argument
from spectralgrad.rules import resolve

from .color.layer import SPACES
from .features.network_options import add_network_arguments, load_networks
from .gallery import KINDS, Look, Transfer, gallery, looks
from .pictures import Picture, find_picture, read_picture, write_picture
from .pictures.encoding import require_writable
from .pictures.shipped import picture_name
from .translation import Translator

T = TypeVar("T")
CONTENTS, STYLES = "cat,coffee,rocket", "cafe_terrace,night_cafe,harvest,church_at_auvers"
_DESCRIPTION = """\
Draw a contact sheet: every content with every style, by the colours of pixels, by features, or by trained translation
networks, for several methods and strengths. Without arguments it shows colour transfer between pictures that come with
the lab. Most methods differ in their gradients only and give the same picture."""
_EXAMPLES = """\
examples:
  spectralgrad transfer gallery -o gallery.png
  spectralgrad transfer gallery --strengths 0.5,1 --space lab -o lab.png
  spectralgrad transfer gallery --contents cat,me.jpg --styles harvest --methods exact,newton-schulz -o two.png
  spectralgrad transfer gallery --kinds color,style --encoder vgg16.safetensors --strengths 0.6 -o both.png
  spectralgrad transfer gallery --kinds translation --runs runs/exact,runs/gd --size 128 -o translated.png"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``spectralgrad transfer gallery``."""
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("-o", "--out", type=path_argument, default=Path("gallery.png"), metavar="FILE", help="(default: %(default)s)")
    for name, default in (("contents", CONTENTS), ("styles", STYLES)):
        text = f"files or names of the lab's pictures (default: {default})"
        add(f"--{name}", type=_several(str), default=default, metavar="NAME[,NAME]", help=text)
    kinds = f"of {', '.join(KINDS)} (default: color)"
    add("--kinds", type=_several(_kind), default="color", metavar="KIND[,KIND]", help=kinds)
    text = "folders of runs of `transfer train`, for translation"
    add("--runs", type=_several(Path), default=[], metavar="DIR[,DIR]", help=text)
    add("--methods", type=_several(str), default="exact", metavar="NAME[,NAME]", help="(default: exact)")
    add("--strengths", type=_several(_share), default="1", metavar="X[,X]", help="from 0 to 1 (default: 1)")
    add("--space", choices=tuple(SPACES), default="rgb", help="color space of color transfer (default: rgb)")
    add("--size", type=int, default=384, metavar="N", help="longest side of the pictures (default: %(default)s)")
    add("--cell", type=int, default=192, metavar="N", help="side of a cell in pixels (default: %(default)s)")
    add_network_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    out = require_writable(options.out)
    for method in options.methods:
        resolve(method, "sqrt")
    if options.size < 16 or options.cell < 16:
        raise ArgumentError(f"--size and --cell: expected at least 16, got {options.size} and {options.cell}")
    if ("translation" in options.kinds) != bool(options.runs):
        raise ArgumentError("--kinds translation and --runs: expected both or neither")
    translators = {folder.resolve().name: Translator.load(folder) for folder in options.runs}
    if len(translators) < len(options.runs):
        raise ArgumentError("--runs: expected folders with different names, since rows are labelled by them")
    wanted = looks([kind for kind in options.kinds if kind != "translation"], options.methods, options.strengths)
    wanted += [Look("translation", name, 1.0) for name in translators]
    encoder, decoders = load_networks(options) if "style" in options.kinds else (None, None)
    transfer = Transfer(options.space, encoder, decoders, options.levels, translators)
    contents, styles = (_read(names, options.size) for names in (options.contents, options.styles))
    with _progress(len(contents) * len(styles) * len(wanted)) as advance:
        sheet = gallery(contents, styles, wanted, transfer, side=options.cell, report=advance)
    write_picture(out, Picture(sheet))
    count = len(contents) * len(styles) * len(wanted)
    print(f"{out}: {count} pictures, {sheet.shape[2]}×{sheet.shape[1]} pixels")


def _read(names: list[str], size: int) -> dict[str, Tensor]:
    paths = [find_picture(name) for name in names]
    return {picture_name(path).replace("_", " "): read_picture(path, longest=size).rgb for path in paths}


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], object]]:
    if not sys.stdout.isatty():
        yield lambda done: None
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task("pictures", total=total)
        yield lambda done: bar.advance(task, done)


def _several(read: Callable[[str], T]) -> Callable[[str], list[T]]:
    def values(text: str) -> list[T]:
        return [read(part) for part in text.split(",")]

    return values


def _kind(text: str) -> str:
    if text not in KINDS:
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(KINDS)}, got {text!r}")
    return text


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"expected numbers from 0 to 1, got {text!r}")
    return share
