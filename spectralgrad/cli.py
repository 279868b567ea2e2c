"""The ``spectralgrad`` command line: the library's commands, and those that other installed packages add."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import __version__
from .errors import ArgumentError, SpectralError
from .io import plugins
from .io.encoding import any_encoding
from .io.files import PLOTS, path_argument, require_writable, said, write_json
from .io.memory import out_of_memory

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
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Characters that the encoding of stdout or stderr lacks are written in ASCII.

    Args:
        arguments: the command and its arguments (default: ``sys.argv[1:]``).

    Returns:
        0 on success, 1 after an error (with a one-line message on stderr), 130 if stopped by Ctrl-C, and whatever else
        the command returns; ``train`` returns 3 if the run failed. Wrong usage raises ``SystemExit(2)``, as argparse
        does. ``rescue`` and ``doctor`` do not return: they replace this process by Python and the program.
    """
    with any_encoding():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}{getattr(options, 'hint', '')}")
    if not callable(getattr(options, "run", None)):  # of a plug-in; a command with subcommands leaves it to them
        who = f"the package that provides the command {options.command}"
        options.parser.error(f"{who} adds nothing to run; reinstall or uninstall it")
    options.arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return options.run(options) or 0
    except BrokenPipeError:  # the reader of the pipe is gone: without this, flushing stdout at exit raises again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (SpectralError, OSError, ValueError, ImportError) as problem:
        text = said(problem) if isinstance(problem, OSError) else problem
        print(f"spectralgrad {options.command}: {text}", file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as problem:
        if not (text := out_of_memory(problem)):
            raise
        print(f"spectralgrad {options.command}: {text}{_advice(options.parser.format_help())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _advice(usage: str) -> str:
    """The flags of a command that reduce its memory, according to its help text."""
    flags = ("--batch-size", "--threads", "--jobs", "--size ", "--longest")
    found = [flag.strip() for flag in flags if flag in usage]
    return f"; try a smaller {' or '.join(found)}" if found else ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spectralgrad",
        description="Differentiable spectral operations for PyTorch: information, checks, benchmarks and training.",
        epilog="Run `spectralgrad COMMAND --help` for the arguments of a command.",
    )
    parser.add_argument("--version", action="version", version=f"spectralgrad {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    info = commands.add_parser(
        "info",
        help="print versions, threads, the eigensolver in use, which method to use, and all methods",
        description="Print versions, threads, instruction set, the eigensolver in use, which method to use for "
        "which task, and all methods with a one-line summary each.",
    )
    info.set_defaults(run=_info)

    _add_conformance(commands)
    _add_inspect(commands)
    commands.add_parser(
        "fuzz",
        help="test every operation and method on difficult random matrices",
        fill=_later("diagnostics.fuzzing.command", "add_arguments"),
    )
    commands.add_parser(
        "doctor",
        help="run a program and report which call makes a gradient non-finite or wrong, and what to write instead",
        fill=_later("diagnostics._doctor.command", "add_arguments"),
    )
    commands.add_parser(
        "rescue",
        help="run a program with torch.linalg.eigh, svd and their relatives replaced",
        fill=_later("rescue.command", "add_arguments"),
    )
    tune = commands.add_parser(
        "tune",
        help="measure which solver is fastest for each matrix size on this machine, and save the result",
        description="Measure on this machine which solver is fastest for each matrix size and type, and where roots, "
        "gradients, polar factors and passes over features are computed fastest, and save the result; later sessions "
        "use it automatically. It takes some minutes.",
    )
    tune.set_defaults(run=_tune)
    _add_commands_of_others(commands)
    return parser


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


def _of_plugin(name: str) -> Callable[[argparse.ArgumentParser], None]:
    def fill(parser: argparse.ArgumentParser) -> None:
        add_arguments = plugins.load(COMMANDS, name)
        if add_arguments is None:
            parser.error(f"cannot import the package that provides the command {name}; reinstall or uninstall it")
        if callable(add_arguments):
            add_arguments(parser)

    return fill


def _missing(name: str) -> Callable[[argparse.ArgumentParser], None]:
    def fill(parser: argparse.ArgumentParser) -> None:
        parser.exit(
            2,
            f"spectralgrad {name}: this command is part of spectralgrad-lab, which is not installed. "
            "Install it from a clone of the repository: pip install -e ./lab\n",
        )

    return fill


def _add_conformance(commands: Any) -> None:
    conformance = commands.add_parser(
        "conformance",
        help="measure the gradient error of every method against a 50-digit reference",
        description="Measure the gradient error of a matrix square root, its inverse or the polar factor for every "
        "method, plain torch and other libraries if they are installed (torchspd, POT, geoopt, pyriemann, spd_learn). "
        "The matrices have prescribed gaps of eigenvalues or singular values; the reference has 50 digits.",
    )
    conformance.add_argument(
        "--function",
        choices=["inv_sqrt", "sqrt", "polar"],
        default="inv_sqrt",
        help="inverse square root, square root or polar factor (default: inv_sqrt)",
    )
    conformance.add_argument(
        "--sizes",
        type=_sizes,
        default=(8,),
        metavar="N[,N]",
        help="even matrix sizes from 2 to 128 (default: 8); size 64 takes about 10 s per row",
    )
    conformance.add_argument("--json", type=path_argument, metavar="FILE", help="also write the results as JSON")
    conformance.add_argument(
        "--plot",
        type=path_argument,
        metavar="FILE",
        help="also plot the error against the gap (png, svg or pdf; needs matplotlib)",
    )
    conformance.set_defaults(run=_conformance)


def _add_inspect(commands: Any) -> None:
    inspect = commands.add_parser(
        "inspect",
        help="report gaps, ties, conditioning and gradient accuracy for matrices in a .npy file",
        description="Read Hermitian matrices from a .npy file and report their eigenvalue gaps, ties and conditioning, "
        "and how accurate a gradient through them is.",
    )
    inspect.add_argument("file", type=path_argument, help=".npy file with matrices of shape (*, d, d)")
    inspect.add_argument(
        "--method",
        default="svd-pade",
        metavar="NAME",
        help="method whose bias and bound are shown; `spectralgrad info` lists all (default: svd-pade)",
    )
    inspect.set_defaults(run=_inspect)


class _Parser(argparse.ArgumentParser):
    """The parser of a command; ``fill`` adds its arguments once the command is chosen, so only its module loads."""

    def __init__(
        self, *args: Any, fill: Callable[[argparse.ArgumentParser], None] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **{**kwargs, "allow_abbrev": False})
        self.set_defaults(parser=self)  # so that an error shows the usage of the command, not of ``spectralgrad``
        self._fill = fill

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._fill is not None:
            fill, self._fill = self._fill, None
            fill(self)
        return super().parse_known_args(args, namespace)


def _later(module: str, function: str) -> Callable[[argparse.ArgumentParser], None]:
    """A ``fill`` that calls ``function`` of ``module``, imported only when the command is chosen."""
    return lambda parser: getattr(import_module(f".{module}", __package__), function)(parser)


def _info(_: argparse.Namespace) -> None:
    from .native import absence, kernel
    from .rules import methods
    from .rules.advice import ADVICE

    native = kernel()
    without = f"LAPACK through torch.linalg (native kernel {absence()})"
    capability = torch.backends.cpu.get_cpu_capability()
    rows = {
        "spectralgrad": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "instruction set": f"{capability} (torch)",
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()}",
        "eigensolver": f"native kernel ({native.isa}), LAPACK behind it" if native else without,
        "accelerators": "cuda" if torch.cuda.is_available() else "none",
    }
    for name, value in rows.items():
        print(f"{name:<16} {value}")
    print("\nwhich method to use")
    width = max(map(len, ADVICE))
    print("\n".join(f"  {task:<{width}}  {advice}" for task, advice in ADVICE.items()))
    print("\nall methods")
    print("\n".join(f"  {line}" for line in repr(methods()).splitlines()))


def _conformance(options: argparse.Namespace) -> None:
    from .diagnostics import conformance, gradient_error_plot

    require_writable(options.json)  # before the measurement, which takes a while
    require_writable(options.plot, PLOTS)
    if options.plot:
        gradient_error_plot.require()
    results = conformance.main(options.function, options.sizes)
    if options.json:
        write_json(options.json, conformance.as_json(results))
        print(f"\nwritten: {options.json}")
    if options.plot:
        gradient_error_plot.gradient_error(options.plot, options.function)
        print(f"\nplotted: {options.plot}")


def _inspect(options: argparse.Namespace) -> None:
    from .diagnostics import inspect

    print(inspect(_matrices(options.file), method=options.method))


def _matrices(file: Path) -> torch.Tensor:
    with file.open("rb") as stream:
        if stream.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
            raise ArgumentError(f"{file} is not a .npy file")
    return torch.from_numpy(np.load(file, allow_pickle=False))


def _tune(_: argparse.Namespace) -> None:
    from .solvers import tune

    try:
        table = tune(print)
    except RuntimeError as problem:
        print(f"nothing to tune: {problem}")
    else:
        print(f"\n{table}")


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(part) for part in text.split(","))
    if any(n < 2 or n > 128 or n % 2 for n in sizes):
        raise argparse.ArgumentTypeError("expected even sizes from 2 to 128, such as 8 or 8,64")
    return sizes


if __name__ == "__main__":
    sys.exit(main())
