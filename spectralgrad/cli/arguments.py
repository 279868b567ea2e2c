"""The library's commands: a line about each, and the functions that add its arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..io import programs
from ..io.files import path_argument

_FUZZ = """\
Test every operation and method on random matrices of difficult families: rank-deficient, repeated, clustered, graded,
denormal, huge, exact ties, Laplacians, glued Wilkinson matrices, fewer positions than channels. Results must meet
LAPACK's error bounds, gradients must be finite and Hermitian, and gradients of the method exact must agree with closed
forms in double precision. The exit status is 1 if a check failed."""
_FUZZ_EXAMPLES = """\
examples:
  spectralgrad fuzz                                    20,000 matrices
  spectralgrad fuzz --matrices 1000000 --json fuzz.json
  spectralgrad fuzz --operation eigh,svd --seconds 60
  spectralgrad fuzz --operation matrix_sqrt --method exact --case 0:115     repeat one case"""
_DOCTOR = """\
Run a Python program, such as a few training steps, and report on its calls of torch.linalg.eigh, svd and the functions
of spectralgrad: where they are, ties, gaps, rank and conditioning, which of them makes a gradient non-finite or wrong,
and what to write instead. The report goes to stderr, also if the program fails; results do not change.
Calls in other threads and processes, and in compiled functions, are not examined."""
_DOCTOR_EXAMPLES = """\
examples:
  spectralgrad doctor train.py --epochs 1
  spectralgrad doctor --json report.json -m package.train"""
_RESCUE = """\
Run a Python program with torch.linalg.eigh, svd and the functions built on them replaced by spectralgrad's,
whose gradients are finite at repeated eigenvalues. The program is not modified, and runs as `python` runs it. The
replacement applies to all its threads and to the processes that it starts by multiprocessing, such as workers of a
DataLoader, until the process ends."""
_RESCUE_EXAMPLES = """\
examples:
  spectralgrad rescue train.py --epochs 3
  spectralgrad rescue -m pytest tests
  torchrun --nproc-per-node 2 -m spectralgrad rescue train.py"""


def _run(function: str) -> Callable[[argparse.Namespace], int | None]:
    """A ``run`` that imports ``function``, given as ``module:name``, when it is called."""
    module, name = function.split(":")

    def run(options: argparse.Namespace) -> int | None:
        done: int | None = getattr(import_module(module, __package__), name)(options)
        return done

    return run


def _info(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print versions, threads, instruction set, the eigensolver in use, which method to use for which task, and all "
        "methods with a one-line summary each."
    )
    parser.set_defaults(run=_run(".commands:info"))


def _conformance(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure the gradient error of a matrix square root, its inverse or the polar factor for every method, plain "
        "torch and other libraries if they are installed (torchspd, POT, geoopt, pyriemann, spd_learn). The matrices "
        "have prescribed gaps of eigenvalues or singular values; the reference has 50 digits."
    )
    parser.add_argument(
        "--function",
        choices=["inv_sqrt", "sqrt", "polar"],
        default="inv_sqrt",
        help="inverse square root, square root or polar factor (default: inv_sqrt)",
    )
    parser.add_argument(
        "--sizes",
        type=_sizes,
        default=(8,),
        metavar="N[,N]",
        help="even matrix sizes from 2 to 128 (default: 8); size 64 takes about 10 s per row",
    )
    parser.add_argument("--json", type=path_argument, metavar="FILE", help="also write the results as JSON")
    parser.add_argument(
        "--plot",
        type=path_argument,
        metavar="FILE",
        help="also plot the error against the gap (png, svg or pdf; needs matplotlib)",
    )
    parser.set_defaults(run=_run(".commands:conformance"))


def _inspect(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Read Hermitian matrices from a .npy file and report their eigenvalue gaps, ties and conditioning, and how "
        "accurate a gradient through them is."
    )
    parser.add_argument("file", type=path_argument, help=".npy file with matrices of shape (*, d, d)")
    parser.add_argument(
        "--method",
        default="svd-pade",
        metavar="NAME",
        help="method whose bias and bound are shown; `spectralgrad info` lists all (default: svd-pade)",
    )
    parser.set_defaults(run=_run(".commands:inspect"))


def _fuzz(parser: argparse.ArgumentParser) -> None:
    _describe(parser, _FUZZ, _FUZZ_EXAMPLES)
    add = parser.add_argument
    add(
        "--matrices",
        type=_whole(1),
        metavar="N",
        help="stop after this many matrices (default: 20000; no limit with --seconds)",
    )
    add("--seconds", type=float, metavar="S", help="stop after this time (default: no limit)")
    add("--seed", type=_whole(0), default=0, metavar="K", help="seed of the random matrices (default: 0)")
    add("--operation", metavar="NAME[,NAME]", help="operations to test, or `list` to print their names (default: all)")
    add("--method", metavar="NAME[,NAME]", help="methods to test (default: all)")
    add("--case", type=_case, metavar="SEED:NUMBER[:SIZE:BATCH]", help="repeat one case, as printed with a failure")
    add("--json", type=path_argument, metavar="FILE", help="also write the table and every failure as JSON")
    parser.set_defaults(run=_run("..diagnostics.fuzzing.command:fuzz"))


def _doctor(parser: argparse.ArgumentParser) -> None:
    _describe(parser, _DOCTOR, _DOCTOR_EXAMPLES)
    parser.add_argument("--json", type=path_argument, metavar="FILE", help="also write the report as JSON")
    programs.add_program(parser, "[--json FILE]")
    parser.set_defaults(run=_run("..diagnostics._doctor.command:examine"))


def _rescue(parser: argparse.ArgumentParser) -> None:
    _describe(parser, _RESCUE, _RESCUE_EXAMPLES)
    parser.add_argument(
        "--method",
        default="svd-pade",
        metavar="NAME",
        help="a method for both eigh and svd, see `spectralgrad info` (default: svd-pade)",
    )
    programs.add_program(parser, "[--method NAME]")
    parser.set_defaults(run=_run("..rescue.command:rescue"))


def _tune(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure on this machine which solver is fastest for each matrix size and type, and where roots, gradients, "
        "polar factors and passes over features are computed fastest, and save the result; later sessions use it "
        "automatically. It takes some minutes."
    )
    parser.add_argument(
        "--device",
        choices=["cpu", "cuda", "mps", "xpu"],
        default="cpu",
        help="device to measure (default: cpu, the only one with thresholds)",
    )
    parser.set_defaults(run=_run(".commands:tune"))


LIBRARY: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "info": ("print versions, threads, the eigensolver in use, which method to use, and all methods", _info),
    "conformance": ("measure the gradient error of every method against a 50-digit reference", _conformance),
    "inspect": ("report gaps, ties, conditioning and gradient accuracy for matrices in a .npy file", _inspect),
    "fuzz": ("test every operation and method on difficult random matrices", _fuzz),
    "doctor": (
        "run a program and report which call makes a gradient non-finite or wrong, and what to write instead",
        _doctor,
    ),
    "rescue": ("run a program with torch.linalg.eigh, svd and their relatives replaced", _rescue),
    "tune": (
        "measure which solver is fastest for each matrix size on this machine, and save the result",
        _tune,
    ),
}


def _describe(parser: argparse.ArgumentParser, description: str, examples: str) -> None:
    parser.description, parser.epilog = description, examples
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(part) for part in text.split(","))
    if any(n < 2 or n > 128 or n % 2 for n in sizes):
        raise argparse.ArgumentTypeError("expected even sizes from 2 to 128, such as 8 or 8,64")
    return sizes


def _case(text: str) -> tuple[int, ...]:
    parts = text.split(":")
    if len(parts) not in (2, 4) or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"expected SEED:NUMBER such as 0:115, got {text!r}")
    return tuple(map(int, parts))


def _whole(least: int) -> Any:
    def whole(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"expected an integer ≥ {least}, got {text!r}")
        return value

    return whole
