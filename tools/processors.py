"""Run examples and numerical tests as other processors would compute them: python -m tools.processors

Results differ in their last bits between processors, because MKL, torch and our kernel choose their code by the
instruction set. Five settings make this machine compute like others:

    MKL_CBWR              the code path of MKL (products, LAPACK, vector functions)
    SPECTRALGRAD_ISA      the instruction set of our kernel; SPECTRALGRAD_NATIVE=0 for none
    ATEN_CPU_CAPABILITY   the instruction set of torch's own loops
    OMP_NUM_THREADS       the number of threads
    LAST_BITS             elementary functions that err in the last bit (tests/last_bits.py)

The runs are chosen such that each pair of values of two settings occurs in one of them. ``--few`` makes two runs that
differ in every setting. Instruction sets that this processor lacks are left out and named.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
LEVELS = ("baseline", "avx2", "avx512")
SETTINGS = {
    "MKL_CBWR": ("", "COMPATIBLE", "AVX2", "AVX512"),
    "SPECTRALGRAD_ISA": ("baseline", "avx2", "avx512", "none"),
    "ATEN_CPU_CAPABILITY": ("default", "avx2", "avx512"),
    "OMP_NUM_THREADS": ("1", "2"),
    "LAST_BITS": ("", "up", "down", "mixed"),
}
FEW = (
    {"MKL_CBWR": "COMPATIBLE", "SPECTRALGRAD_ISA": "baseline", "ATEN_CPU_CAPABILITY": "default"}
    | {"OMP_NUM_THREADS": "2", "LAST_BITS": "down"},
    {"MKL_CBWR": "AVX2", "SPECTRALGRAD_ISA": "none", "ATEN_CPU_CAPABILITY": "avx2"}
    | {"OMP_NUM_THREADS": "1", "LAST_BITS": "up"},
)
EXAMPLES = ("spectralgrad", "lab", "tests/test_docs.py", "tests/lab/test_docs.py")
_PROPERTIES = """
    approximate_roots batch_independence contract distances_contract distances_exactness eigenvalues exact_ties
    exactness extreme_scales feature_scales generalised hard_cases lapack_acceptance nn_exactness rank_deficiency
    rotations singular_functions svd_gradient
"""
NUMERICS = [f"tests/test_{name}.py" for name in _PROPERTIES.split()]

Run = dict[str, str]


def main() -> int:
    """Parse the arguments, make the runs and print a line for each; returns the number of runs that failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.processors", description=__doc__.split("\n")[0])
    parser.add_argument("--few", action="store_true", help="two runs that differ in every setting, as CI makes them")
    parser.add_argument("--list", action="store_true", help="print the runs with their numbers and stop")
    parser.add_argument("--from", type=int, default=1, dest="first", help="number of the first run, to continue")
    parser.add_argument("--tests", nargs="+", default=[*EXAMPLES, *NUMERICS], help="default: examples and numerics")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at the same time (default: cores)")
    options = parser.parse_args()
    available, absent = _available()
    if absent:
        print(f"not on this processor: {', '.join(absent)}", flush=True)
    runs = (
        [run for run in FEW if all(run[k] in available[k] for k in run)] if options.few else list(covering(available))
    )
    numbered = list(enumerate(runs, 1))[options.first - 1 :]
    if options.list:
        print(*(f"{number:2} {described(run)}" for number, run in numbered), sep="\n")
        return 0
    with ThreadPoolExecutor(options.jobs) as pool:
        passed = list(pool.map(lambda one: _made(*one, options.tests), numbered))
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return len(passed) - sum(passed)


def _available() -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return the values of each setting that this processor can execute, and the instruction sets it lacks."""
    found = torch.backends.cpu.get_cpu_capability().lower()
    absent = list(LEVELS[LEVELS.index(found) + 1 :] if found in LEVELS else LEVELS[1:])
    kept = {key: tuple(v for v in values if v.lower() not in absent) for key, values in SETTINGS.items()}
    return kept, absent


def covering(settings: dict[str, tuple[str, ...]]) -> Iterator[Run]:
    """Yield runs in which each pair of values of two settings occurs; the one with most new pairs comes first."""
    everything = [dict(zip(settings, values, strict=True)) for values in itertools.product(*settings.values())]
    missing = set().union(*map(_pairs, everything))
    while missing:
        best = max(everything, key=lambda run: len(_pairs(run) & missing))
        missing -= _pairs(best)
        yield best


def _pairs(run: Run) -> set[frozenset[tuple[str, str]]]:
    return {frozenset(pair) for pair in itertools.combinations(run.items(), 2)}


def described(run: Run) -> str:
    """Return the run as it is typed in a shell."""
    return " ".join(f"{name}={value}" for name, value in _environment(run).items())


def _environment(run: Run) -> Run:
    given = {name: value for name, value in run.items() if value}
    if given["SPECTRALGRAD_ISA"] == "none":
        del given["SPECTRALGRAD_ISA"]
        given["SPECTRALGRAD_NATIVE"] = "0"
    return given


def _made(number: int, run: Run, tests: list[str]) -> bool:
    """Make one run; its output is printed if a test fails."""
    plugin = ["-p", "tests.last_bits"] if run["LAST_BITS"] else []
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", *plugin, *tests]
    inherited = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    inherited["OMP_WAIT_POLICY"] = "passive"  # on a busy machine, threads that wait actively take most of the time
    start = time.time()
    done = subprocess.run(command, cwd=ROOT, env=inherited | _environment(run), capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, done.stderr, flush=True)
    closing = (done.stdout.strip().splitlines() or ["no output"])[-1]
    print(f"{number:2} {described(run)}: {closing.strip('= ')} ({time.time() - start:.0f} s)", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
