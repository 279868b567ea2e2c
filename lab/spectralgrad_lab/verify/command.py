"""The command ``spectralgrad verify``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from spectralgrad.io.files import path_argument, require_writable_folder

from ..report import template
from ..training.loop.progress import bar, console_of
from . import accelerator, contract, decompositions, failures, report, speed, transforms
from .checks import FAILED, Check, Outcome, outcomes
from .speed import Time
from .target import Target, present, target

DESCRIPTION = """\
Check this library on a device: values and gradients of all functions and layers in every type that the device has,
LAPACK's acceptance test, gradients against 50 digits, transforms, autocast, failures, Triton kernels, host reads and
CUDA graphs; and measure the speed beside torch. It takes a few minutes, writes a page and a JSON file, and names
neither paths nor the machine in them. The exit status is 1 if a check failed."""
EXAMPLES = """\
examples:
  spectralgrad verify                       the accelerator that torch has, or the CPU
  spectralgrad verify --device cuda:1 --quick
  spectralgrad verify --device mps --out report
  spectralgrad verify --only functions,layers"""
GROUPS = (
    "functions", "methods", "layers", "decompositions", "batches", "50 digits", "transforms", "autocast", "failures",
    "Triton", "host reads", "graphs", "speed",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``spectralgrad verify``."""
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add(
        "--device",
        metavar="NAME",
        help="cuda, cuda:1, mps, xpu or cpu (default: the accelerator that torch has, or cpu)",
    )
    add("--quick", action="store_true", help="fewer types, sizes and methods: less than a minute")
    add("--only", type=_groups, metavar="NAME[,NAME]", help=f"of {', '.join(GROUPS)} (default: all)")
    add(
        "--out",
        type=path_argument,
        metavar="DIR",
        help=f"folder for {report.PAGE} and {report.DATA} (default: verify-NAME)",
    )
    parser.set_defaults(run=verify)


def verify(options: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    template.require()
    device = target(options.device or present()[-1])
    folder: Path = options.out or Path(f"verify-{device.name.replace(':', '-')}")
    require_writable_folder(folder)
    times: list[Time] = []
    chosen = [check for check in checks(options.quick, times) if not options.only or check.group in options.only]
    against = accelerator.reason_against_triton(device)

    def save(done: list[Outcome]) -> report.Run:
        found = report.here(device, options.quick, done, times, against)
        report.write(folder, found)
        return found

    found = save(run(chosen, device, save))
    print(report.text(found))
    print(f"written: {folder / report.PAGE} and {folder / report.DATA}, to attach to an issue")
    return 1 if found.with_status(FAILED) else 0


def checks(quick: bool, times: list[Time]) -> Iterable[Check]:
    """All checks in their order: those that may leave a device in disorder come late, times last."""
    rooms = (contract, decompositions, transforms, failures, accelerator)
    return chain(*(room.checks(quick) for room in rooms), speed.checks(quick, times))


def run(chosen: list[Check], device: Target, save: Callable[[list[Outcome]], object]) -> list[Outcome]:
    """Run checks with a progress bar on a terminal; save each complete group, for a driver may end the process."""
    done: list[Outcome] = []
    with _shown(len(chosen)) as advance:
        for outcome in outcomes(chosen, device):
            if done and outcome.group != done[-1].group:
                save(done)
            done.append(outcome)
            advance(outcome)
    return done


@contextmanager
def _shown(total: int) -> Iterator[Callable[[Outcome], None]]:
    console = console_of(sys.stderr)
    if console is None:
        yield lambda outcome: None
        return
    with bar(console) as progress:
        task, failed = progress.add_task("verify", total=total, said=""), 0

        def advance(outcome: Outcome) -> None:
            nonlocal failed
            failed += outcome.status == FAILED
            progress.update(task, advance=1, said=f"{outcome.group}{f', {failed} failed' if failed else ''}")

        yield advance


def _groups(text: str) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    unknown = [name for name in chosen if name not in GROUPS]
    if unknown:
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(GROUPS)}, got {', '.join(unknown)!r}")
    return chosen
