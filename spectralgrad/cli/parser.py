"""The parser of the command line. A command adds its arguments once it is chosen, so only its module loads."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from .._lazy import complete
from .._version import __version__
from ..io import plugins
from .arguments import LIBRARY

Fill = Callable[[argparse.ArgumentParser], None]

# The group of entry points through which packages add commands. Each entry point is a function that adds the arguments
# of its command to the parser it receives, and sets ``run``.
COMMANDS = "spectralgrad.commands"
# Listed in the help even if the lab is not installed.
_LAB = {
    "bench": "compare the speed with torch.linalg, plain autograd, Newton-Schulz and other libraries",
    "compare": "train with several methods and compare success rates, errors and times",
    "report": "write the HTML report of a comparison",
    "reproduce": "recompute what the papers claim, and compare with the published numbers",
    "train": "train a network with a protocol of the papers or your own",
    "transfer": "give an image the colours or the style of another one",
    "verify": "check this library on a device, such as a GPU, and write a report",
}


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; ``run`` of the result is the function to call with it, ``parser`` the command's parser."""
    options, unknown = parser().parse_known_args(arguments)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}{getattr(options, 'hint', '')}")
    if not callable(getattr(options, "run", None)):  # of a plug-in; a command with subcommands leaves it to them
        who = f"the package that provides the command {options.command}"
        options.parser.error(f"{who} adds nothing to run; reinstall or uninstall it")
    options.arguments = list(arguments)
    return options


def parser() -> argparse.ArgumentParser:
    """Return the parser with all commands, also of other packages."""
    whole = argparse.ArgumentParser(
        prog="spectralgrad",
        description="Differentiable spectral operations for PyTorch: information, checks, benchmarks and training.",
        epilog="Run `spectralgrad COMMAND --help` for the arguments of a command.",
    )
    whole.add_argument("--version", action="version", version=f"spectralgrad {__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    for name, (about, fill) in LIBRARY.items():
        commands.add_parser(name, help=about, fill=fill)
    _add_commands_of_others(commands)
    return whole


class _Parser(argparse.ArgumentParser):
    """The parser of a command; ``fill`` adds its arguments when they are to be parsed."""

    def __init__(self, *args: Any, fill: Fill | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "allow_abbrev": False})
        self.set_defaults(parser=self)  # so that an error shows the usage of the command, not of ``spectralgrad``
        self._fill = fill

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._fill is not None:
            fill, self._fill = self._fill, None
            fill(self)
        return super().parse_known_args(args, namespace)


def _add_commands_of_others(commands: Any) -> None:
    """Add the commands of other packages; if the lab is not installed, its commands say how to install it."""
    installed = plugins.names(COMMANDS)
    for name in sorted({*_LAB, *installed}):
        if name in commands.choices:
            continue
        about = _LAB.get(name, "provided by another package")
        if name in installed:
            commands.add_parser(name, help=about, fill=_of_plugin(name))
        else:
            commands.add_parser(name, help=f"{about} (needs the lab)", fill=_missing(name))


def _of_plugin(name: str) -> Fill:
    def fill(parser: argparse.ArgumentParser) -> None:
        complete()  # other packages import what they like
        add_arguments = plugins.load(COMMANDS, name)
        if add_arguments is None:
            parser.error(f"cannot import the package that provides the command {name}; reinstall or uninstall it")
        if callable(add_arguments):
            add_arguments(parser)

    return fill


def _missing(name: str) -> Fill:
    def fill(parser: argparse.ArgumentParser) -> None:
        parser.exit(
            2,
            f"spectralgrad {name}: this command is part of spectralgrad-lab, which is not installed. "
            "Install it from a clone of the repository: pip install -e ./lab\n",
        )

    return fill
