"""Build and check the wheels of a release, for four platforms and for all others, on one machine.

    python -m tools.wheels build              # all wheels and source distributions, into dist/
    python -m tools.wheels check              # the files, their kernels, and what the kernels compute under emulators
    python -m tools.wheels test               # the tests of the kernel in a new environment with this machine's wheel
    python -m tools.wheels speed              # the kernel of this machine's wheel against the one of `make kernel`
    python -m tools.wheels version            # that all files state one version; prints its section of the changelog
    python -m tools.wheels version --set 1.2.3    # writes it, and the date of the section

`make wheels` runs the first two. The compiler is the clang of the PyPI package ziglang, which needs no system libraries
of the platforms.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from . import archive, checks, release
from .kernels import PLATFORMS, ROOT, Platform, compile_kernel, this_machine


def main() -> int:
    """Run a command; returns the number of complaints."""
    parser = argparse.ArgumentParser(prog="python -m tools.wheels", description=(__doc__ or "").split("\n")[0])
    commands: dict[str, Callable[[Path], int]] = {
        "build": build,
        "check": check,
        "test": test,
        "speed": speed,
        "version": version,
    }
    parser.add_argument("command", choices=commands)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="the folder of the wheels (default: dist)")
    parser.add_argument("--set", metavar="VERSION", help="with `version`: write this version into all files first")
    options = parser.parse_args()
    if options.set and options.command != "version":
        parser.error("--set is for the command version")
    try:
        if options.set:
            release.set_version(options.set)
    except ValueError as error:
        parser.error(str(error))
    return commands[options.command](options.dist)


def build(dist: Path) -> int:
    """Compile the kernels, and write all wheels into the folder in place of the files there."""
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    for package in (ROOT, ROOT / "lab"):
        archive.plain(package, dist, "sdist")
    archive.plain(ROOT / "lab", dist, "wheel")
    plain = archive.plain(ROOT, dist, "wheel")
    for name, platform in PLATFORMS.items():
        kernel = compile_kernel(platform, ROOT / "build" / "wheels" / name)
        print(archive.with_kernel(plain, kernel, platform).name, flush=True)
    return 0


def check(dist: Path) -> int:
    """Print sizes, what the emulated kernels compute, and what is wrong."""
    for file in sorted(dist.iterdir()):
        print(f"{file.stat().st_size / 1e6:5.2f} MB  {file.name}")
    wrong = list(_complaints(dist))
    print(*wrong, f"{len(wrong)} complaints", sep="\n")
    return len(wrong)


def _complaints(dist: Path) -> Iterator[str]:
    yield from checks.tools(sorted(dist.iterdir()))
    yield from checks.recipe()
    for name, platform, wheel in _wheels(dist):
        yield from checks.contents(wheel, platform)
        if platform is None:
            continue
        kernel = unpacked(wheel, platform, dist.parent / "build" / "wheels" / "unpacked" / name)
        yield from checks.library(name, kernel)
        for printed, wrong in checks.computed(name, kernel):
            print(printed, flush=True)
            if wrong:
                yield wrong


def _wheels(dist: Path) -> Iterator[tuple[str, Platform | None, Path]]:
    """The wheels of the library with their platforms; a missing one is an error."""
    tags: list[tuple[str, Platform | None, str]] = [(name, p, p.tag) for name, p in PLATFORMS.items()]
    for name, platform, tag in [*tags, ("any", None, "any")]:
        yield name, platform, dist / f"spectralgrad-{archive.version()}-py3-none-{tag}.whl"


def unpacked(wheel: Path, platform: Platform, folder: Path) -> Path:
    """Extract the kernel of a wheel; return its path."""
    with zipfile.ZipFile(wheel) as files:
        return Path(files.extract(f"spectralgrad/native/{platform.file}", folder))


def test(dist: Path) -> int:
    """Run the tests of the kernel in a new environment."""
    own = next(wheel for name, _, wheel in _wheels(dist) if name == this_machine())
    return release.test(own)


def speed(dist: Path) -> int:
    """Print the cells that differ by more than 10 %, and the means; returns 1 if the wheel's kernel is 5 % slower."""
    from spectralgrad.native import build

    from . import speed as cells

    name = this_machine()
    own = next(wheel for other, _, wheel in _wheels(dist) if other == name)
    kernel = unpacked(own, PLATFORMS[name], dist.parent / "build" / "wheels" / "unpacked" / name)
    ratios: dict[str, list[float]] = {}
    for cell, seconds, ratio in cells.compared((build.HERE / build.FILE, kernel), 0.1):
        ratios.setdefault(cell.rsplit(" ", 2)[0], []).append(ratio)
        if not 0.9 < ratio < 1.1:
            print(f"{cell:<36} {seconds * 1e6:9.1f} µs  wheel / gcc {ratio:.2f}", flush=True)
    for cell, found in ratios.items():
        print(f"{cell:<36} {statistics.geometric_mean(found):.2f}, at most {max(found):.2f}")
    mean = statistics.geometric_mean([ratio for found in ratios.values() for ratio in found])
    print(f"{'all':<36} {mean:.2f}")
    return int(math.log(mean) > math.log(1.05))


def version(_: Path) -> int:
    """Print the section of the changelog, or what is missing."""
    wrong = list(release.complaints())
    print(*(wrong or [release.section()]), sep="\n")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
