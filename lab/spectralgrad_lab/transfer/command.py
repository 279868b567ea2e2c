"""The command ``spectralgrad transfer`` with its subcommands."""

from __future__ import annotations

import argparse
from importlib import import_module

_DESCRIPTION = """\
Give an image the colours or the style of another one by whitening and colouring: features of the content are whitened,
then coloured with mean and covariance of the style."""

# The module of each subcommand has a function ``add_arguments(parser)``, which also sets ``run``.
_COMMANDS = {
    "apply": ("translation.apply_command", "translate a picture with the networks of a run"),
    "color": ("color.command", "give an image the colours of another one"),
    "gallery": ("gallery_command", "draw a contact sheet of contents and styles"),
    "style": ("features.style_command", "give an image the style of another one, by features of VGG-16"),
    "train": ("translation.train_command", "train networks that translate between two folders of images"),
    "train-decoder": ("features.train_decoder_command", "train a decoder for style"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of ``spectralgrad transfer``."""
    parser.description = _DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(metavar="COMMAND", title="commands, each with --help", required=True)
    for name, (module, what) in _COMMANDS.items():
        command = commands.add_parser(name, help=what)
        import_module(f".{module}", __package__).add_arguments(command)
